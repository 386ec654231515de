//! Tickets and whoever settles them: taken, renewed and settled, with the fleet if there is one.
//!
//! Tickets stay in the process that gave them; what they settle may be shared. Must not know: how reports are written down.

use tollgate_store::{Clock, StoreError};

use crate::app::App;
use crate::tickets::Taken;

impl<C: Clock> App<C> {
    /// Takes a ticket to settle it.
    pub(crate) async fn take_ticket(&self, id: u128) -> Taken {
        self.tickets.take(id, self.engine.store().now()).await
    }

    /// Extends the leases of an open ticket and keeps it longer. Whether all places are still held; `None` if there is no
    /// such ticket.
    pub(crate) async fn renew_ticket(&self, id: u128) -> Result<Option<bool>, StoreError> {
        let now = self.engine.store().now();
        if !self.waits() {
            // In one step with finding it: nobody else sees it on its way.
            let mut failure = None;
            let held = self.tickets.renew(id, now, |ticket| {
                let renewed = self.engine.renew(ticket);
                renewed.unwrap_or_else(|error| {
                    failure = Some(error);
                    false
                })
            });
            return failure.map_or(Ok(held), Err);
        }
        let Some(lent) = self.tickets.lend(id, now).await else {
            return Ok(None);
        };
        let Some(ticket) = lent.ticket() else {
            return Ok(None);
        };
        let held = self.engine.together().renew(ticket).await?;
        if held {
            lent.renew(now);
        }
        Ok(Some(held))
    }
}
