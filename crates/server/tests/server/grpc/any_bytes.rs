//! Arbitrary bytes as Envoy's request: nothing panics, and every reply is valid. The fuzz target `envoy` runs this on random
//! inputs, the test here on fixed ones.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::Timestamp;
use tollgate_policy::source::SourceFormat;
use tollgate_server::HttpApi;
use tollgate_server::grpc::GrpcServer;
use tollgate_store::ManualClock;

/// Fragments that random bytes rarely contain.
const PIECES: [&[u8]; 20] = [
    b"\x0a\x01d",                                                    // domain: d
    b"\x0a\x00",                                                     // domain, empty
    b"\x12\x08\x0a\x06\x0a\x01a\x12\x01b",                           // a descriptor of a=b
    b"\x12\x08\x0a\x06\x0a\x01a\x12\x01c",                           // a=c
    b"\x12\x10\x0a\x06\x0a\x01a\x12\x01b\x0a\x06\x0a\x01e\x12\x01f", // a=b, e=f
    b"\x12\x0a\x0a\x06\x0a\x01a\x12\x01b\x1a\x00",                   // a=b, a look
    b"\x12\x0c\x0a\x06\x0a\x01a\x12\x01b\x1a\x02\x08\x07",           // seven hits
    b"\x12\x15\x0a\x06\x0a\x01a\x12\x01b\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // all hits
    b"\x12\x0e\x0a\x06\x0a\x01a\x12\x01b\x1a\x02\x08\x03\x20\x01", // three given back
    b"\x12\x0e\x0a\x06\x0a\x01a\x12\x01b\x12\x04\x08\x02\x10\x02", // its own limit
    b"\x12\x0e\x0a\x06\x0a\x01a\x12\x01b\x12\x04\x08\x02\x10\x09", // in no unit
    b"\x12\x00",                                                   // a descriptor of nothing
    b"\x12\x02\x0a\x00",                                           // of an empty entry
    b"\x18\x05",                                                   // five hits for all
    b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0b\x0c",             // a group
    b"\x25\x00\x00\x00\x00", // four bytes of something
    b"\x0a\x02\xc3\x28",     // no UTF-8
    b"\x12\x7f",             // cut off
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];

/// One API for all inputs: earlier decisions must not matter.
pub(crate) struct Both {
    by_files: GrpcServer<Arc<ManualClock>>,
    by_policy: GrpcServer<Arc<ManualClock>>,
}

impl Both {
    pub(crate) fn new() -> Self {
        let clock = || Arc::new(ManualClock::at(Timestamp::from_secs(1)));
        let file = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: minute, requests_per_unit: 9 }\n    \
                    descriptors:\n      - key: e\n        value: f*\n        rate_limit: { unlimited: true }\n";
        let files = tollgate_envoy::config::load(&[("d.yaml", file)]).unwrap();
        let text = "limits: [{ name: a, key: descriptor.a, rate: 9/m }, { name: in-flight, concurrency: 2 }, \
                    { name: later, key: descriptor.e, rate: 9/m, charge: always, overdraft: 9 }]";
        let policy = tollgate_policy::load(text, "p.yaml", SourceFormat::Yaml).unwrap();
        let by_files = HttpApi::from_envoy_policy(files, 64, clock()).unwrap();
        let by_policy = HttpApi::new(&policy, 64, clock()).unwrap();
        Self {
            by_files: GrpcServer::new(Arc::clone(by_files.envoy())),
            by_policy: GrpcServer::new(Arc::clone(by_policy.envoy())),
        }
    }

    /// Sends the bytes as they are and as indices of fragments.
    ///
    /// If a reply is invalid.
    pub(crate) fn ask(&self, bytes: &[u8]) {
        self.check(bytes);
        let pieces: Vec<u8> = bytes
            .iter()
            .take(64)
            .flat_map(|byte| match PIECES.get(usize::from(*byte % 32)) {
                Some(piece) => *piece,
                None => std::slice::from_ref(byte),
            })
            .copied()
            .collect();
        self.check(&pieces);
    }

    fn check(&self, bytes: &[u8]) {
        let answers = [&self.by_files, &self.by_policy].map(|grpc| {
            let mut out = Vec::new();
            let answered = at_once(grpc.answer_bytes(bytes, &mut out));
            if let Err((code, message)) = &answered {
                assert!(*code == 3 && !message.is_empty(), "{code} {message}");
                return None;
            }
            assert!(out.len() < 1 << 16);
            let (overall, statuses) = read(&out);
            assert!(matches!(overall, 1 | 2), "never unknown");
            assert_eq!(
                statuses.iter().all(|code| *code == 1),
                overall == 1,
                "none of these files and policies has quotas or shadows"
            );
            Some(statuses.len())
        });
        // Both parse the same request.
        let [by_files, by_policy] = answers;
        assert_eq!(by_files, by_policy);
        assert_ne!(by_files, Some(0));
    }
}

/// The overall code and the codes of the statuses, parsed independently of the writer.
fn read(mut bytes: &[u8]) -> (u8, Vec<u8>) {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            if *first < 0x80 {
                break;
            }
        }
        number
    }
    let (mut overall, mut codes) = (0, Vec::new());
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        if tag == 0x08 {
            overall = u8::try_from(number).unwrap();
            continue;
        }
        assert_eq!(tag & 7, 2);
        let (inner, rest) = bytes.split_at(usize::try_from(number).unwrap());
        bytes = rest;
        if tag == 0x12 {
            assert_eq!(inner[0], 0x08, "a status begins with its code");
            codes.push(inner[1]);
        }
    }
    (overall, codes)
}

#[test]
fn i13_no_bytes_that_envoy_may_send_break_a_promise() {
    let both = Both::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let length = usize::try_from(next() % 40).unwrap();
        let bytes: Vec<u8> = (0..length).map(|_| next().to_le_bytes()[3]).collect();
        both.ask(&bytes);
    }
}

#[test]
fn every_fragment_is_valid() {
    let both = Both::new();
    for piece in PIECES {
        both.check(&[PIECES[0], piece].concat());
    }
    // Most fragments are a request after a domain and before a descriptor.
    let whole = |piece: &&&[u8]| {
        let request = [PIECES[0], piece, PIECES[2]].concat();
        at_once(both.by_files.answer_bytes(&request, &mut Vec::new())).is_ok()
    };
    assert_eq!(PIECES.iter().filter(whole).count(), 15);
}

/// The value of a future that is ready at the first poll. Defined here, because the fuzz target includes only this file.
fn at_once<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it had to be waited for"),
    }
}
