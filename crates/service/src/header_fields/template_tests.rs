//! Templates give the same fields as the renderer, and are made only for keys that come again.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_engine::CheckOptions;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;

use crate::{HeaderFields, RateLimitService, Secret, Transport};

const POLICY: &str = "
limits:
  - { name: per-client, key: ip, rate: 2000/min }
  - { name: per-key, key: header.x-api-key, rate: 3/s }
  - { name: all, rate: 100000/h }
";

struct Caller {
    ip: IpAddr,
    key: Option<String>,
}

impl Attributes for Caller {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip)
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Header(_) => self.key.as_deref().map(str::as_bytes),
            _ => None,
        }
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(tollgate_core::Timestamp::from_nanos(
        1_700_000_000_000_000_000,
    )))
}

fn service(policy: &str, clock: &Arc<ManualClock>) -> RateLimitService<Arc<ManualClock>> {
    let policy = tollgate_policy::load(policy, "p.yaml", SourceFormat::Yaml).unwrap();
    RateLimitService::new(&policy, 10_000, Arc::clone(clock), Secret([7; 16])).unwrap()
}

/// Decides on a request. Returns whether a template gave its fields, after comparing them with the renderer's.
fn is_from_template(service: &RateLimitService<Arc<ManualClock>>, caller: &Caller) -> bool {
    let options = CheckOptions::default();
    let verdict = service
        .check_local(Transport::Http, caller, options)
        .unwrap();
    let mut expected = HeaderFields::new();
    service.fields(&verdict, &mut expected);
    let Some(admitted) = service.admitted_fields(&verdict) else {
        return false;
    };
    assert!(verdict.is_admitted());
    let fields = [
        ("ratelimit-policy", admitted.policy.as_bytes()),
        ("ratelimit", &*admitted.limit),
    ];
    assert!(expected.iter().eq(fields), "{expected:?} {admitted:?}");
    true
}

/// Random callers, times and two services with the same keys and other quotas, one of which is replaced meanwhile.
#[test]
fn templates_give_the_fields_of_the_renderer() {
    let clock = clock();
    let first = service(POLICY, &clock);
    let second = service(&POLICY.replace("2000/min", "3300/min"), &clock);
    let mut random = 1_u64;
    let mut from_templates = 0;
    for round in 0..6_000_u32 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c, d, ..] = random.to_be_bytes();
        let key = (b % 4 > 0).then(|| "k".repeat(usize::from(b % 80)));
        let caller = Caller {
            ip: [192, 0, 2, a % 6].into(),
            key,
        };
        if round == 3_000 {
            let policy = POLICY.replace("3/s", "5/s");
            let policy = tollgate_policy::load(&policy, "p.yaml", SourceFormat::Yaml).unwrap();
            second.replace(&policy).unwrap();
        }
        clock.advance(tollgate_core::Nanos::from_millis(u64::from(c)));
        let service = if d % 2 == 0 { &first } else { &second };
        // Twice in a row, because a template is made at the second time.
        for _ in 0..2 {
            from_templates += u32::from(is_from_template(service, &caller));
        }
    }
    assert!(
        (1_000..12_000).contains(&from_templates),
        "{from_templates}"
    );
}

#[test]
fn a_flood_of_keys_makes_no_templates() {
    let clock = clock();
    let service = service(
        "limits: [{ name: per-key, key: header.x-api-key, rate: 5/s }]",
        &clock,
    );
    let caller = |number: u32| Caller {
        ip: [192, 0, 2, 7].into(),
        key: Some(format!("key-{number:08}")),
    };
    assert!((0..5_000).all(|number| !is_from_template(&service, &caller(number))));
    // The negative control: a key that comes again gets one.
    let again: Vec<bool> = (0..4)
        .map(|_| is_from_template(&service, &caller(9_000)))
        .collect();
    assert_eq!(again, [false, true, true, true]);
}
