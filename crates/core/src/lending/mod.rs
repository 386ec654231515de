//! Lending parts of one token bucket to nodes that then decide by themselves.
//!
//! A node takes a *slice* in advance and spends it without asking. What is out on loan is taken off the bucket's
//! capacity, so what the bucket itself admits and what all slices hold never exceed the quota together, whatever is
//! lost, late or dead; the price is that a slice nobody spends admits less. [`Book`] is the lender's side, kept
//! where the bucket is kept. [`Slice`] is the borrower's.
//!
//! - A grant changes only what is outstanding.
//! - A report of k spent by instant t moves k from what is outstanding to the bucket's debt, as if spent at t.
//! - A return only lowers what is outstanding, and not by what was spent and perhaps never reported.
//! - A slice that expires counts as spent at its expiry, for its holder may have spent it and died.
//!
//! The borrower counts its slice's life from before it first asked, less a margin for clocks that run at different speeds,
//! so it always stops before the lender has written the slice off.
//!
//! Must not know: networks, Redis, clocks, how much a node should ask for (see [`share`](crate::share)).

mod book;
mod slice;

pub use book::{Book, Loan, LoanId, MAX_LOANS};
pub use slice::Slice;
