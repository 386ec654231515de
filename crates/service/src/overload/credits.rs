//! The credits of one target's clients, and how many offers there were.
//!
//! Must not know: header fields, who a client is.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Timestamp;
use tollgate_overload::{ConcurrencyGate, CreditClient, CreditLedger, CreditOffer};
use tollgate_policy::model::Mode;

use super::OverloadTicket;
use super::control::OverloadControl;
use super::status::CreditStatus;

/// Offers of credits: sent ones, and those of shadow mode.
#[derive(Debug, Default)]
pub(super) struct OfferCounters {
    enforced: AtomicU64,
    shadow: AtomicU64,
}

impl OfferCounters {
    /// Counts an offer. Returns it if it is sent.
    pub(super) fn record(&self, mode: Mode, offer: Option<CreditOffer>) -> Option<CreditOffer> {
        let counter = match mode {
            Mode::Enforce => &self.enforced,
            Mode::Shadow => &self.shadow,
            Mode::Off => return None,
        };
        let offer = offer?;
        counter.fetch_add(1, Ordering::Relaxed);
        (mode == Mode::Enforce).then_some(offer)
    }

    /// How many were sent, and how many would have been.
    pub(super) fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.enforced), load(&self.shadow))
    }
}

/// The credits of one target. Without memory while they are off.
#[derive(Debug, Default)]
pub(super) struct TargetCredits {
    ledger: Option<CreditLedger>,
}

impl TargetCredits {
    /// Forgets everything if credits are off.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        if mode == Mode::Off {
            self.ledger = None;
        }
    }

    /// Counts a request that its limits admitted. Returns what its client may send, if the capacity is known.
    pub(super) fn record_request<T>(
        &mut self,
        now: Timestamp,
        client: CreditClient,
        gate: &ConcurrencyGate<T>,
    ) -> Option<CreditOffer> {
        let ledger = self.ledger.get_or_insert_with(|| CreditLedger::new(now));
        ledger.record_request(now, client, gate.capacity_per_second())
    }

    /// Tells the client of a refused request when to return.
    pub(super) fn record_refusal<T>(
        &mut self,
        now: Timestamp,
        client: CreditClient,
        gate: &ConcurrencyGate<T>,
    ) -> Option<CreditOffer> {
        let ledger = self.ledger.get_or_insert_with(|| CreditLedger::new(now));
        ledger.record_refusal(now, client, gate.capacity_per_second())
    }

    pub(super) fn status(&self) -> Option<CreditStatus> {
        let ledger = self.ledger.as_ref()?;
        let (issued, pool) = ledger.issued_and_pool();
        Some(CreditStatus {
            clients: ledger.clients(),
            issued_per_second: issued,
            capacity_per_second: pool,
        })
    }
}

impl OverloadControl {
    /// Counts a request that its limits admitted. Returns the credits that the response reports to its client.
    pub(super) fn offer_credits(
        &self,
        now: Timestamp,
        ticket: &OverloadTicket,
    ) -> Option<CreditOffer> {
        let client = ticket.credit_client()?;
        let offer = self.lock().as_mut().and_then(|state| {
            let gate = &state.gate;
            state.credits.record_request(now, client, gate)
        });
        self.counters.offers.record(ticket.overload.credits, offer)
    }

    /// What the refusal of a request says about its client's credits.
    pub(super) fn refuse_credits(
        &self,
        now: Timestamp,
        mode: Mode,
        client: Option<CreditClient>,
    ) -> Option<CreditOffer> {
        let client = client?;
        let offer = self.lock().as_mut().and_then(|state| {
            let gate = &state.gate;
            state
                .credits
                .record_refusal(now.max(state.now), client, gate)
        });
        self.counters.offers.record(mode, offer)
    }
}
