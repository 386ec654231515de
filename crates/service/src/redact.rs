//! Removes secrets from a policy before it is shown.
//!
//! Overrides name single keys and conditions name header values, and some of them are credentials. Readers of a policy need
//! not learn them. The name of the attribute decides whether a value is secret. A secret value is replaced by a short keyed
//! digest, so that two values can still be distinguished. Must not know: how a policy takes effect, who reads it.

use siphasher::sip128::SipHasher24;
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{Glob, Match, Policy, Test};

/// An attribute is secret if its name contains one of these. Cookies are always secret.
const SECRET_NAME_PARTS: [&str; 9] = [
    "auth",
    "cookie",
    "credential",
    "key",
    "pass",
    "secret",
    "session",
    "sig",
    "token",
];

/// The policy with digests in place of secrets.
pub(crate) fn redact(policy: &Policy, secret: &[u8; 16]) -> Policy {
    let mut policy = policy.clone();
    let hide = |value: &str| -> Box<str> {
        let digest = SipHasher24::new_with_key(secret).hash(value.as_bytes());
        let short = digest.h1 >> 16;
        format!("#{short:012x}").into()
    };
    let matches = policy.limits.iter_mut().map(|limit| &mut limit.matching);
    let matches = matches
        .chain(&mut policy.exempt)
        .chain(policy.deny.iter_mut().map(|deny| &mut deny.matching));
    for matching in matches {
        hide_values(matching, &hide);
    }
    for limit in &mut policy.limits {
        for over in &mut limit.overrides {
            for (part, value) in limit.key.iter().zip(&mut over.key.value) {
                if is_secret(&part.attribute.value) {
                    *value = hide(value);
                }
            }
        }
    }
    policy
}

fn hide_values(matching: &mut Match, hide: &impl Fn(&str) -> Box<str>) {
    for condition in &mut matching.conditions {
        if is_secret(&condition.value.attribute) {
            hide_test(&mut condition.value.test, hide);
        }
    }
}

fn hide_test(test: &mut Test, hide: &impl Fn(&str) -> Box<str>) {
    match test {
        Test::OneOf(values) => {
            for value in values {
                *value = hide(value);
            }
        }
        Test::Glob(globs) => {
            for Glob(glob) in globs {
                *glob = hide(glob);
            }
        }
        Test::Not(inner) => hide_test(inner, hide),
        _ => {}
    }
}

fn is_secret(attribute: &Attribute) -> bool {
    let name = match attribute {
        Attribute::Cookie(_) => return true,
        Attribute::Header(name)
        | Attribute::Query(name)
        | Attribute::Claim(name)
        | Attribute::Descriptor(name)
        | Attribute::Extension(name)
        | Attribute::AnyDescriptor(name) => name.to_ascii_lowercase(),
        _ => return false,
    };
    SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::explain::explain;
    use tollgate_policy::source::SourceFormat;

    const TEXT: &str = r#"
deny:
  - match: { header.authorization: ["Bearer hunter2", "Basic hunter3"] }
exempt:
  - { cookie.debug: hunter4, header.x-plan: gold }
limits:
  - name: api
    match: { header.x-signature: { not: "hunter5*" } }
    key: [header.x-api-key, ip]
    rate: 5/s
    overrides:
      - { key: [hunter6, 192.0.2.7], rate: 9/s }
      - { key: [hunter7, 192.0.2.7], rate: 10/s }
"#;

    #[test]
    fn an_explanation_of_a_redacted_policy_contains_no_secret() {
        let policy = tollgate_policy::load(TEXT, "a.yaml", SourceFormat::Yaml);
        let policy = policy.unwrap_or_else(|problems| panic!("{problems}"));
        let before = format!("{:?}", explain(&policy).unwrap());
        assert_eq!(before.matches("hunter").count(), 6, "{before}");
        let after = format!("{:?}", explain(&redact(&policy, &[7; 16])).unwrap());
        assert!(!after.contains("hunter"), "{after}");
        for open in ["gold", "192.0.2.7", "x-signature"] {
            assert!(after.contains(open), "{open}: {after}");
        }
        let other = format!("{:?}", explain(&redact(&policy, &[8; 16])).unwrap());
        assert_ne!(after, other, "digests are keyed");
    }
}
