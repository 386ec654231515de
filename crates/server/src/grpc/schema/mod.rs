//! The messages and services that are spoken here, as data, and how that is told to tools that ask.
//!
//! Tables of names, numbers and types; `descriptor.proto` is what they are written as. Must not know: who asks, how messages
//! are read.

mod envoy;
mod google;
mod grpc;
mod quotas;

use super::wire::Writer;

/// A file of messages.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// Files whose messages it uses.
    pub(super) needs: &'static [&'static str],
    pub(super) messages: &'static [Message],
    pub(super) enums: &'static [Enum],
    pub(super) services: &'static [Service],
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
    pub(super) messages: &'static [Self],
    pub(super) enums: &'static [Enum],
    /// Names of groups of which only one field is there.
    pub(super) choices: &'static [&'static str],
    /// Whether it is a pair of a map.
    pub(super) is_pair: bool,
}

#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
    is_list: bool,
    /// Which of the message's choices it belongs to.
    choice: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Double,
    Int64,
    Uint64,
    Int32,
    Bool,
    String,
    Bytes,
    Uint32,
    /// By its full name, with a dot before it.
    Message(&'static str),
    Enum(&'static str),
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: &'static str,
    pub(super) values: &'static [(&'static str, u64)],
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    pub(super) methods: &'static [Call],
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) asks: &'static str,
    pub(super) answers: &'static str,
    pub(super) asks_many: bool,
    pub(super) answers_many: bool,
}

/// Every file there is.
pub(super) const FILES: [&File; 14] = [
    &envoy::RLS,
    &quotas::RLQS,
    &quotas::STRATEGY,
    &quotas::TOKENS,
    &envoy::DESCRIPTORS,
    &envoy::UNITS,
    &envoy::HEADERS,
    &google::DURATION,
    &google::TIMESTAMP,
    &google::STRUCT,
    &google::WRAPPERS,
    &grpc::HEALTH,
    &grpc::REFLECTION,
    &grpc::REFLECTION_ALPHA,
];

impl File {
    const EMPTY: Self = Self {
        name: "",
        package: "",
        needs: &[],
        messages: &[],
        enums: &[],
        services: &[],
    };

    /// Whether a name, with its package, is defined here: a message, an enumeration, a service, a method or a field.
    pub(super) fn defines(&self, symbol: &str) -> bool {
        let rest = symbol
            .strip_prefix(self.package)
            .and_then(|rest| rest.strip_prefix('.'));
        let Some(name) = rest else {
            return false;
        };
        self.services.iter().any(|service| service.is(name))
            || self.enums.iter().any(|one| one.name == name)
            || self.messages.iter().any(|message| message.is(name))
    }

    /// Writes it as a `FileDescriptorProto`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.text(1, self.name.as_bytes());
        writer.text(2, self.package.as_bytes());
        for need in self.needs {
            writer.text(3, need.as_bytes());
        }
        for message in self.messages {
            writer.message(4, |writer| message.write(writer));
        }
        for one in self.enums {
            writer.message(5, |writer| one.write(writer));
        }
        for service in self.services {
            writer.message(6, |writer| service.write(writer));
        }
        writer.text(12, b"proto3");
    }
}

impl Message {
    const EMPTY: Self = Self {
        name: "",
        fields: &[],
        messages: &[],
        enums: &[],
        choices: &[],
        is_pair: false,
    };

    const fn of(name: &'static str, fields: &'static [Field]) -> Self {
        Self {
            name,
            fields,
            ..Self::EMPTY
        }
    }

    fn is(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.name) else {
            return false;
        };
        let Some(inner) = rest.strip_prefix('.') else {
            return rest.is_empty();
        };
        self.messages.iter().any(|message| message.is(inner))
            || self.enums.iter().any(|one| one.name == inner)
            || self.fields.iter().any(|field| field.name == inner)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, self.name.as_bytes());
        for field in self.fields {
            writer.message(2, |writer| field.write(writer));
        }
        for message in self.messages {
            writer.message(3, |writer| message.write(writer));
        }
        for one in self.enums {
            writer.message(4, |writer| one.write(writer));
        }
        if self.is_pair {
            writer.message(7, |writer| writer.number(7, 1));
        }
        for choice in self.choices {
            writer.message(8, |writer| writer.text(1, choice.as_bytes()));
        }
    }
}

impl Field {
    const fn one(name: &'static str, number: u32, kind: Kind) -> Self {
        Self {
            name,
            number,
            kind,
            is_list: false,
            choice: None,
        }
    }

    const fn list(name: &'static str, number: u32, kind: Kind) -> Self {
        Self {
            is_list: true,
            ..Self::one(name, number, kind)
        }
    }

    /// One of the fields of the message's first choice.
    const fn choice(name: &'static str, number: u32, kind: Kind) -> Self {
        Self {
            choice: Some(0),
            ..Self::one(name, number, kind)
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, self.name.as_bytes());
        writer.number(3, self.number.into());
        writer.number(4, if self.is_list { 3 } else { 1 });
        let (number, named) = match self.kind {
            Kind::Double => (1, ""),
            Kind::Int64 => (3, ""),
            Kind::Uint64 => (4, ""),
            Kind::Int32 => (5, ""),
            Kind::Bool => (8, ""),
            Kind::String => (9, ""),
            Kind::Message(name) => (11, name),
            Kind::Bytes => (12, ""),
            Kind::Uint32 => (13, ""),
            Kind::Enum(name) => (14, name),
        };
        writer.number(5, number);
        writer.text(6, named.as_bytes());
        if let Some(choice) = self.choice {
            writer.chosen(9, choice.into());
        }
    }
}

impl Enum {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, self.name.as_bytes());
        for (name, number) in self.values {
            writer.message(2, |writer| {
                writer.text(1, name.as_bytes());
                writer.chosen(2, *number);
            });
        }
    }
}

impl Service {
    fn is(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.name) else {
            return false;
        };
        let method = rest.strip_prefix('.');
        rest.is_empty() || method.is_some_and(|it| self.methods.iter().any(|one| one.name == it))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(1, self.name.as_bytes());
        for method in self.methods {
            writer.message(2, |writer| {
                writer.text(1, method.name.as_bytes());
                writer.text(2, method.asks.as_bytes());
                writer.text(3, method.answers.as_bytes());
                writer.number(5, method.asks_many.into());
                writer.number(6, method.answers_many.into());
            });
        }
    }
}

impl Call {
    const fn of(name: &'static str, asks: &'static str, answers: &'static str) -> Self {
        Self {
            name,
            asks,
            answers,
            asks_many: false,
            answers_many: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(message: &Message, found: &mut Vec<&'static str>) {
        for field in message.fields {
            if let Kind::Message(name) | Kind::Enum(name) = field.kind {
                found.push(name);
            }
        }
        for inner in message.messages {
            kinds(inner, found);
        }
    }

    #[test]
    fn every_type_is_defined_in_the_file_or_in_one_that_it_needs() {
        for file in FILES {
            let mut used = Vec::new();
            for message in file.messages {
                kinds(message, &mut used);
            }
            for service in file.services {
                for method in service.methods {
                    used.extend([method.asks, method.answers]);
                }
            }
            for name in used {
                let symbol = name.strip_prefix('.').unwrap();
                let known =
                    |other: &&&File| other.name == file.name || file.needs.contains(&other.name);
                let defined = FILES.iter().filter(known).any(|file| file.defines(symbol));
                assert!(defined, "{name} in {}", file.name);
            }
            for need in file.needs {
                assert!(FILES.iter().any(|other| other.name == *need), "{need}");
            }
        }
    }

    #[test]
    fn symbols_are_found_in_one_file_only() {
        for symbol in [
            "envoy.service.ratelimit.v3.RateLimitService",
            "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
            "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",
            "envoy.service.ratelimit.v3.RateLimitRequest.domain",
            "google.protobuf.Struct.FieldsEntry",
            "grpc.health.v1.Health",
            "envoy.service.rate_limit_quota.v3.RateLimitQuotaService.StreamRateLimitQuotas",
            "envoy.type.v3.RateLimitStrategy.BlanketRule",
        ] {
            assert_eq!(FILES.iter().filter(|file| file.defines(symbol)).count(), 1);
        }
        for symbol in [
            "",
            "envoy",
            "envoy.service.ratelimit.v3",
            "grpc.health.v1.Heal",
        ] {
            assert!(!FILES.iter().any(|file| file.defines(symbol)), "{symbol}");
        }
    }
}
