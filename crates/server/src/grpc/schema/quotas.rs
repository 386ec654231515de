//! Envoy's quota service and its messages, as far as they are used here.
//!
//! Must not know: how messages are read, written or answered.

use super::{Call, Enum, Field, File, Kind, Message, Service};

const DURATION: Kind = Kind::Message(".google.protobuf.Duration");
const BUCKET_ID: Kind = Kind::Message(".envoy.service.rate_limit_quota.v3.BucketId");

pub(super) const RLQS: File = File {
    name: "envoy/service/rate_limit_quota/v3/rlqs.proto",
    package: "envoy.service.rate_limit_quota.v3",
    needs: &[STRATEGY.name, super::google::DURATION.name],
    messages: &[REPORTS, RESPONSE, ID],
    services: &[Service {
        name: "RateLimitQuotaService",
        methods: &[Call {
            asks_many: true,
            answers_many: true,
            ..Call::of(
                "StreamRateLimitQuotas",
                ".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports",
                ".envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse",
            )
        }],
    }],
    ..File::EMPTY
};

const REPORTS: Message = Message {
    name: "RateLimitQuotaUsageReports",
    fields: &[
        Field::one("domain", 1, Kind::String),
        Field::list(
            "bucket_quota_usages",
            2,
            Kind::Message(
                ".envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports.BucketQuotaUsage",
            ),
        ),
    ],
    messages: &[Message::of(
        "BucketQuotaUsage",
        &[
            Field::one("bucket_id", 1, BUCKET_ID),
            Field::one("time_elapsed", 2, DURATION),
            Field::one("num_requests_allowed", 3, Kind::Uint64),
            Field::one("num_requests_denied", 4, Kind::Uint64),
        ],
    )],
    ..Message::EMPTY
};

const RESPONSE: Message = Message {
    name: "RateLimitQuotaResponse",
    fields: &[Field::list(
        "bucket_action",
        1,
        Kind::Message(".envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction"),
    )],
    messages: &[Message {
        name: "BucketAction",
        fields: &[
            Field::one("bucket_id", 1, BUCKET_ID),
            Field::choice(
                "quota_assignment_action",
                2,
                Kind::Message(
                    ".envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction",
                ),
            ),
            Field::choice(
                "abandon_action",
                3,
                Kind::Message(
                    ".envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction.AbandonAction",
                ),
            ),
        ],
        messages: &[
            Message::of(
                "QuotaAssignmentAction",
                &[
                    Field::one("assignment_time_to_live", 2, DURATION),
                    Field::one(
                        "rate_limit_strategy",
                        3,
                        Kind::Message(".envoy.type.v3.RateLimitStrategy"),
                    ),
                ],
            ),
            Message::of("AbandonAction", &[]),
        ],
        choices: &["bucket_action"],
        ..Message::EMPTY
    }],
    ..Message::EMPTY
};

const ID: Message = Message {
    name: "BucketId",
    fields: &[Field::list(
        "bucket",
        1,
        Kind::Message(".envoy.service.rate_limit_quota.v3.BucketId.BucketEntry"),
    )],
    messages: &[Message {
        name: "BucketEntry",
        fields: &[
            Field::one("key", 1, Kind::String),
            Field::one("value", 2, Kind::String),
        ],
        is_pair: true,
        ..Message::EMPTY
    }],
    ..Message::EMPTY
};

pub(super) const STRATEGY: File = File {
    name: "envoy/type/v3/ratelimit_strategy.proto",
    package: "envoy.type.v3",
    needs: &[super::envoy::UNITS.name, TOKENS.name],
    messages: &[Message {
        name: "RateLimitStrategy",
        fields: &[
            Field::choice(
                "blanket_rule",
                1,
                Kind::Enum(".envoy.type.v3.RateLimitStrategy.BlanketRule"),
            ),
            Field::choice(
                "requests_per_time_unit",
                2,
                Kind::Message(".envoy.type.v3.RateLimitStrategy.RequestsPerTimeUnit"),
            ),
            Field::choice(
                "token_bucket",
                3,
                Kind::Message(".envoy.type.v3.TokenBucket"),
            ),
        ],
        messages: &[Message::of(
            "RequestsPerTimeUnit",
            &[
                Field::one("requests_per_time_unit", 1, Kind::Uint64),
                Field::one("time_unit", 2, Kind::Enum(".envoy.type.v3.RateLimitUnit")),
            ],
        )],
        enums: &[Enum {
            name: "BlanketRule",
            values: &[("ALLOW_ALL", 0), ("DENY_ALL", 1)],
        }],
        choices: &["strategy"],
        ..Message::EMPTY
    }],
    ..File::EMPTY
};

pub(super) const TOKENS: File = File {
    name: "envoy/type/v3/token_bucket.proto",
    package: "envoy.type.v3",
    needs: &[super::google::DURATION.name, super::google::WRAPPERS.name],
    messages: &[Message::of(
        "TokenBucket",
        &[
            Field::one("max_tokens", 1, Kind::Uint32),
            Field::one(
                "tokens_per_fill",
                2,
                Kind::Message(".google.protobuf.UInt32Value"),
            ),
            Field::one("fill_interval", 3, DURATION),
        ],
    )],
    ..File::EMPTY
};
