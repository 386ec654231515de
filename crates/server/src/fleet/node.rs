//! A server as a node of its fleet: the service, or the files of envoyproxy/ratelimit where they decide.
//!
//! Must not know: registers, beats.

use std::num::NonZeroU32;

use tollgate_engine::control::{Adopted, ToPut, Wake};
use tollgate_service::fleet::{Node, Tally};
use tollgate_store::Clock;
use tollgate_store::register::Said;

use crate::app::HttpApi;

impl<C: Clock + 'static> Node for HttpApi<C> {
    fn policy(&self) -> u64 {
        match self.file_status() {
            Some(status) => status.hash.short(),
            None => self.service.policy(),
        }
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn tally(&self) -> Tally {
        self.service.tally()
    }

    fn share_among(&self, nodes: NonZeroU32) {
        self.service.share_among(nodes);
    }

    fn share(&self, wake: Wake) {
        self.service.share(wake);
    }

    fn to_put(&self) -> ToPut {
        self.service.to_put()
    }

    fn was_put(&self, put: &ToPut) {
        self.service.was_put(put);
    }

    fn give_up(&self, put: &ToPut) {
        self.service.give_up(put);
    }

    fn tell_again(&self, lost_after: Option<u64>) {
        self.service.tell_again(lost_after);
    }

    fn adopt(&self, said: &Said) -> Adopted {
        let adopted = self.service.adopt(said);
        if self.is_by_envoys_files() {
            // There are no limits of ours then, so the switch over everything is all there is.
            let everything = self.engine().control().everything();
            self.rls.shadow(everything.halt.is_some());
        }
        adopted
    }

    fn unheard(&self) -> (usize, u64) {
        self.service.unheard()
    }
}
