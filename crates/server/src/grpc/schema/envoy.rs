//! Envoy's rate limit service and the messages that it is asked and answered with, as far as they are used here.
//!
//! Must not know: how messages are read, written or answered.

use super::{Call, Enum, Field, File, Kind, Message, Service};

const DURATION: Kind = Kind::Message(".google.protobuf.Duration");
const HEADER: Kind = Kind::Message(".envoy.config.core.v3.HeaderValue");
const CODE: Kind = Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code");
const QUOTA: Kind = Kind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.Quota");

pub(super) const RLS: File = File {
    name: "envoy/service/ratelimit/v3/rls.proto",
    package: "envoy.service.ratelimit.v3",
    needs: &[
        DESCRIPTORS.name,
        HEADERS.name,
        super::google::DURATION.name,
        super::google::STRUCT.name,
        super::google::TIMESTAMP.name,
    ],
    messages: &[REQUEST, RESPONSE],
    services: &[Service {
        name: "RateLimitService",
        methods: &[Call::of(
            "ShouldRateLimit",
            ".envoy.service.ratelimit.v3.RateLimitRequest",
            ".envoy.service.ratelimit.v3.RateLimitResponse",
        )],
    }],
    ..File::EMPTY
};

const REQUEST: Message = Message::of(
    "RateLimitRequest",
    &[
        Field::one("domain", 1, Kind::String),
        Field::list(
            "descriptors",
            2,
            Kind::Message(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"),
        ),
        Field::one("hits_addend", 3, Kind::Uint32),
    ],
);

const RESPONSE: Message = Message {
    name: "RateLimitResponse",
    fields: &[
        Field::one("overall_code", 1, CODE),
        Field::list(
            "statuses",
            2,
            Kind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus"),
        ),
        Field::list("response_headers_to_add", 3, HEADER),
        Field::list("request_headers_to_add", 4, HEADER),
        Field::one("raw_body", 5, Kind::Bytes),
        Field::one(
            "dynamic_metadata",
            6,
            Kind::Message(".google.protobuf.Struct"),
        ),
        Field::one("quota", 7, QUOTA),
    ],
    messages: &[
        LIMIT,
        Message {
            name: "Quota",
            fields: &[
                Field::one("requests", 1, Kind::Uint32),
                Field::choice(
                    "valid_until",
                    2,
                    Kind::Message(".google.protobuf.Timestamp"),
                ),
                Field::one("id", 3, Kind::String),
            ],
            choices: &["expiration_specifier"],
            ..Message::EMPTY
        },
        Message::of(
            "DescriptorStatus",
            &[
                Field::one("code", 1, CODE),
                Field::one(
                    "current_limit",
                    2,
                    Kind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit"),
                ),
                Field::one("limit_remaining", 3, Kind::Uint32),
                Field::one("duration_until_reset", 4, DURATION),
                Field::one("quota", 5, QUOTA),
            ],
        ),
    ],
    enums: &[Enum {
        name: "Code",
        values: &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)],
    }],
    ..Message::EMPTY
};

const LIMIT: Message = Message {
    name: "RateLimit",
    fields: &[
        Field::one("requests_per_unit", 1, Kind::Uint32),
        Field::one(
            "unit",
            2,
            Kind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit"),
        ),
        Field::one("name", 3, Kind::String),
    ],
    enums: &[Enum {
        name: "Unit",
        values: &[
            ("UNKNOWN", 0),
            ("SECOND", 1),
            ("MINUTE", 2),
            ("HOUR", 3),
            ("DAY", 4),
            ("MONTH", 5),
            ("YEAR", 6),
            ("WEEK", 7),
        ],
    }],
    ..Message::EMPTY
};

pub(super) const DESCRIPTORS: File = File {
    name: "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
    package: "envoy.extensions.common.ratelimit.v3",
    needs: &[UNITS.name, super::google::WRAPPERS.name],
    messages: &[Message {
        name: "RateLimitDescriptor",
        fields: &[
            Field::list(
                "entries",
                1,
                Kind::Message(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry"),
            ),
            Field::one(
                "limit",
                2,
                Kind::Message(
                    ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride",
                ),
            ),
            Field::one(
                "hits_addend",
                3,
                Kind::Message(".google.protobuf.UInt64Value"),
            ),
            Field::one("is_negative_hits", 4, Kind::Bool),
        ],
        messages: &[
            Message::of(
                "Entry",
                &[
                    Field::one("key", 1, Kind::String),
                    Field::one("value", 2, Kind::String),
                ],
            ),
            Message::of(
                "RateLimitOverride",
                &[
                    Field::one("requests_per_unit", 1, Kind::Uint32),
                    Field::one("unit", 2, Kind::Enum(".envoy.type.v3.RateLimitUnit")),
                ],
            ),
        ],
        ..Message::EMPTY
    }],
    ..File::EMPTY
};

pub(super) const UNITS: File = File {
    name: "envoy/type/v3/ratelimit_unit.proto",
    package: "envoy.type.v3",
    enums: &[Enum {
        name: "RateLimitUnit",
        values: &[
            ("UNKNOWN", 0),
            ("SECOND", 1),
            ("MINUTE", 2),
            ("HOUR", 3),
            ("DAY", 4),
            ("MONTH", 5),
            ("YEAR", 6),
        ],
    }],
    ..File::EMPTY
};

pub(super) const HEADERS: File = File {
    name: "envoy/config/core/v3/base.proto",
    package: "envoy.config.core.v3",
    messages: &[Message::of(
        "HeaderValue",
        &[
            Field::one("key", 1, Kind::String),
            Field::one("value", 2, Kind::String),
            Field::one("raw_value", 3, Kind::Bytes),
        ],
    )],
    ..File::EMPTY
};
