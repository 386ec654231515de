//! A minimal RLQS client: sends reports and receives actions, encoded and decoded by hand.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use tokio::time::timeout;

use crate::grpc::client::{self, FieldValue, bytes_field, framed, number_field, read};

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);
pub(super) const PATH: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// One stream on its own connection.
pub(super) struct RlqsClient {
    pub(super) connection: client::Client,
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    come: BytesMut,
    actions: VecDeque<QuotaAction>,
}

/// The action for a bucket, which is named by its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QuotaAction {
    Allow(String),
    Deny(String),
    /// The bucket size, the fill amount and seconds, and the lifetime.
    Tokens(String, [u64; 3], u64),
    Abandon(String),
}

/// A report: the bucket's pairs, the seconds since the last report, allowed and denied.
pub(super) type UsageReport<'a> = (&'a [(&'a str, &'a str)], u64, u64, u64);

pub(super) fn reports(domain: &str, reports: &[UsageReport<'_>]) -> Vec<u8> {
    let mut out = bytes_field(1, domain.as_bytes());
    for (pairs, seconds, allowed, denied) in reports {
        let pair = |(key, value): &(&str, &str)| {
            let pair = [
                bytes_field(1, key.as_bytes()),
                bytes_field(2, value.as_bytes()),
            ];
            bytes_field(1, &pair.concat())
        };
        let id: Vec<u8> = pairs.iter().flat_map(pair).collect();
        let usage = [
            bytes_field(1, &id),
            bytes_field(2, &number_field(1, *seconds)),
            number_field(3, *allowed),
            number_field(4, *denied),
        ];
        out.extend(bytes_field(2, &usage.concat()));
    }
    out
}

impl RlqsClient {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let mut connection = client::Client::connect(address).await;
        let (response, sending) = connection.open(PATH).await;
        let response = timeout(DEADLINE, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        Self {
            connection,
            sending,
            receiving: response.into_body(),
            come: BytesMut::new(),
            actions: VecDeque::new(),
        }
    }

    pub(super) fn report(&mut self, domain: &str, all: &[UsageReport<'_>]) {
        self.send(&framed(&reports(domain, all)));
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        // It fails if the server has ended the stream.
        let _sent = self.sending.send_data(bytes, false);
    }

    /// The next action.
    pub(super) async fn next_action(&mut self) -> QuotaAction {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return action;
            }
            let more = timeout(DEADLINE, self.receiving.data()).await;
            let bytes = more.expect("an assignment").expect("a stream").unwrap();
            self.take(&bytes);
        }
    }

    /// The first action, or `None` if the stream ends first.
    pub(super) async fn next_action_or_end(&mut self) -> Option<QuotaAction> {
        let more = timeout(DEADLINE, self.receiving.data()).await.unwrap();
        self.take(&more?.ok()?);
        self.actions.pop_front()
    }

    /// All actions until the stream ends, and its status.
    pub(super) async fn read_to_end(mut self) -> (Vec<QuotaAction>, Option<i32>) {
        while let Some(Ok(bytes)) = timeout(DEADLINE, self.receiving.data()).await.unwrap() {
            self.take(&bytes);
        }
        let status = self.status().await;
        (self.actions.into(), status)
    }

    /// The status of the stream, without releasing flow-control window.
    pub(super) async fn status_without_window(mut self) -> Option<i32> {
        while let Some(Ok(_)) = timeout(DEADLINE, self.receiving.data()).await.unwrap() {}
        self.status().await
    }

    async fn status(&mut self) -> Option<i32> {
        let trailers = timeout(DEADLINE, self.receiving.trailers()).await.unwrap();
        let fields = trailers.ok().flatten()?;
        let status = fields.get("grpc-status")?.to_str().unwrap();
        Some(status.parse().unwrap())
    }

    fn take(&mut self, bytes: &Bytes) {
        self.receiving
            .flow_control()
            .release_capacity(bytes.len())
            .unwrap();
        self.come.extend_from_slice(bytes);
        while let Some(length) = self.come.get(1..5) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.come.len() < length + 5 {
                break;
            }
            let message = self.come.split_to(length + 5).freeze().slice(5..);
            for field in read(message) {
                let (1, FieldValue::Bytes(action)) = field else {
                    panic!("{field:?}");
                };
                self.actions.push_back(QuotaAction::read(&action));
            }
        }
    }
}

fn part(message: &Bytes, number: u64) -> Option<Bytes> {
    read(message.clone())
        .into_iter()
        .find_map(|field| match field {
            (found, FieldValue::Bytes(bytes)) if found == number => Some(bytes),
            _ => None,
        })
}

fn number(message: &Bytes, number: u64) -> Option<u64> {
    read(message.clone())
        .into_iter()
        .find_map(|field| match field {
            (found, FieldValue::Number(value)) if found == number => Some(value),
            _ => None,
        })
}

impl QuotaAction {
    fn read(action: &Bytes) -> Self {
        let id = part(action, 1).unwrap();
        let values = read(id).into_iter().map(|field| match field {
            (1, FieldValue::Bytes(pair)) => {
                String::from_utf8(part(&pair, 2).unwrap_or_default().to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        });
        let name = values.collect::<Vec<_>>().join(",");
        let Some(assignment) = part(action, 2) else {
            assert_eq!(part(action, 3), Some(Bytes::new()));
            return Self::Abandon(name);
        };
        let life = number(&part(&assignment, 2).unwrap(), 1).unwrap();
        let strategy = part(&assignment, 3).unwrap();
        match number(&strategy, 1) {
            Some(0) => return Self::Allow(name),
            Some(1) => return Self::Deny(name),
            _ => {}
        }
        let tokens = part(&strategy, 3).unwrap();
        let fill = number(&part(&tokens, 2).unwrap(), 1).unwrap();
        let interval = part(&tokens, 3).unwrap();
        let seconds = number(&interval, 1).unwrap();
        assert_eq!(number(&interval, 2), Some(seconds % 1_000_000_000));
        Self::Tokens(name, [number(&tokens, 1).unwrap(), fill, seconds], life)
    }

    /// The size of the bucket; 0 if everything is denied.
    pub(super) fn share(&self) -> u64 {
        match self {
            Self::Tokens(_, [most, ..], _) => *most,
            Self::Deny(_) => 0,
            other => panic!("{other:?}"),
        }
    }
}
