//! Replies that a test wants lost or forged: which, how many, and what becomes of them.
//!
//! Must not know: sockets, how replies are told apart.

use std::collections::VecDeque;

use super::toxics::CloseMode;

/// Stands for the replies to all commands.
pub const ANY: &str = "*";

/// What happens to a connection that has lost a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRewrite {
    /// It ends.
    End(CloseMode),
    /// It goes on, so that every later reply answers another command than the client thinks.
    GoOn,
}

/// What becomes of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyFate {
    Passed,
    Replaced(Vec<u8>),
    Lost(AfterRewrite),
}

#[derive(Clone, Debug)]
struct RewriteRule {
    command: String,
    left: u64,
    fate: ReplyFate,
}

/// What is to become of replies to come.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyRewriter(VecDeque<RewriteRule>);

impl ReplyRewriter {
    /// Gives the next `times` replies to a command this fate, after the rules that were added before.
    pub(super) fn add(&mut self, command: &str, times: u64, fate: ReplyFate) {
        self.0.push_back(RewriteRule {
            command: command.to_owned(),
            left: times,
            fate,
        });
    }

    /// From now on all replies pass.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }

    /// The fate of the next reply to this command.
    pub(super) fn next(&mut self, command: &str) -> ReplyFate {
        let concerns = |rule: &&mut RewriteRule| rule.command == ANY || rule.command == command;
        let Some(rule) = self.0.iter_mut().find(concerns) else {
            return ReplyFate::Passed;
        };
        rule.left = rule.left.saturating_sub(1);
        let fate = rule.fate.clone();
        self.0.retain(|rule| rule.left > 0);
        fate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_are_dealt_in_order_to_the_replies_that_they_concern_and_no_more() {
        let mut meddling = ReplyRewriter::default();
        let lost = ReplyFate::Lost(AfterRewrite::GoOn);
        meddling.add("GET", 2, lost.clone());
        meddling.add(ANY, 1, ReplyFate::Replaced(b"+A\r\n".to_vec()));
        assert_eq!(meddling.next("GET"), lost);
        assert_eq!(
            meddling.next("PING"),
            ReplyFate::Replaced(b"+A\r\n".to_vec())
        );
        assert_eq!(meddling.next("PING"), ReplyFate::Passed);
        assert_eq!(meddling.next("GET"), lost);
        assert_eq!(meddling.next("GET"), ReplyFate::Passed);
        meddling.add(ANY, u64::MAX, lost.clone());
        assert_eq!(meddling.next("GET"), lost);
        meddling.end();
        assert_eq!(meddling.next("GET"), ReplyFate::Passed);
    }
}
