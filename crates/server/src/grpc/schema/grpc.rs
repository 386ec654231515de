//! The services of gRPC itself: health, and reflection in both of its versions, which differ in their names only.
//!
//! Must not know: how messages are read, written or answered.

use super::{Call, Enum, Field, File, Kind, Message, Service};

const CHECKED: Kind = Kind::Message(".grpc.health.v1.HealthCheckResponse");

pub(super) const HEALTH: File = File {
    name: "grpc/health/v1/health.proto",
    package: "grpc.health.v1",
    messages: &[
        Message::of(
            "HealthCheckRequest",
            &[Field::one("service", 1, Kind::String)],
        ),
        Message {
            name: "HealthCheckResponse",
            fields: &[Field::one(
                "status",
                1,
                Kind::Enum(".grpc.health.v1.HealthCheckResponse.ServingStatus"),
            )],
            enums: &[Enum {
                name: "ServingStatus",
                values: &[
                    ("UNKNOWN", 0),
                    ("SERVING", 1),
                    ("NOT_SERVING", 2),
                    ("SERVICE_UNKNOWN", 3),
                ],
            }],
            ..Message::EMPTY
        },
        Message::of("HealthListRequest", &[]),
        Message {
            name: "HealthListResponse",
            fields: &[Field::list(
                "statuses",
                1,
                Kind::Message(".grpc.health.v1.HealthListResponse.StatusesEntry"),
            )],
            messages: &[Message {
                name: "StatusesEntry",
                fields: &[
                    Field::one("key", 1, Kind::String),
                    Field::one("value", 2, CHECKED),
                ],
                is_pair: true,
                ..Message::EMPTY
            }],
            ..Message::EMPTY
        },
    ],
    services: &[Service {
        name: "Health",
        methods: &[
            Call::of(
                "Check",
                ".grpc.health.v1.HealthCheckRequest",
                ".grpc.health.v1.HealthCheckResponse",
            ),
            Call::of(
                "List",
                ".grpc.health.v1.HealthListRequest",
                ".grpc.health.v1.HealthListResponse",
            ),
            Call {
                answers_many: true,
                ..Call::of(
                    "Watch",
                    ".grpc.health.v1.HealthCheckRequest",
                    ".grpc.health.v1.HealthCheckResponse",
                )
            },
        ],
    }],
    ..File::EMPTY
};

macro_rules! reflection {
    ($package:literal, $file:literal) => {
        File {
            name: $file,
            package: $package,
            messages: &[
                Message {
                    name: "ServerReflectionRequest",
                    fields: &[
                        Field::one("host", 1, Kind::String),
                        Field::choice("file_by_filename", 3, Kind::String),
                        Field::choice("file_containing_symbol", 4, Kind::String),
                        Field::choice(
                            "file_containing_extension",
                            5,
                            Kind::Message(concat!(".", $package, ".ExtensionRequest")),
                        ),
                        Field::choice("all_extension_numbers_of_type", 6, Kind::String),
                        Field::choice("list_services", 7, Kind::String),
                    ],
                    choices: &["message_request"],
                    ..Message::EMPTY
                },
                Message::of(
                    "ExtensionRequest",
                    &[
                        Field::one("containing_type", 1, Kind::String),
                        Field::one("extension_number", 2, Kind::Int32),
                    ],
                ),
                Message {
                    name: "ServerReflectionResponse",
                    fields: &[
                        Field::one("valid_host", 1, Kind::String),
                        Field::one(
                            "original_request",
                            2,
                            Kind::Message(concat!(".", $package, ".ServerReflectionRequest")),
                        ),
                        Field::choice(
                            "file_descriptor_response",
                            4,
                            Kind::Message(concat!(".", $package, ".FileDescriptorResponse")),
                        ),
                        Field::choice(
                            "all_extension_numbers_response",
                            5,
                            Kind::Message(concat!(".", $package, ".ExtensionNumberResponse")),
                        ),
                        Field::choice(
                            "list_services_response",
                            6,
                            Kind::Message(concat!(".", $package, ".ListServiceResponse")),
                        ),
                        Field::choice(
                            "error_response",
                            7,
                            Kind::Message(concat!(".", $package, ".ErrorResponse")),
                        ),
                    ],
                    choices: &["message_response"],
                    ..Message::EMPTY
                },
                Message::of(
                    "FileDescriptorResponse",
                    &[Field::list("file_descriptor_proto", 1, Kind::Bytes)],
                ),
                Message::of(
                    "ExtensionNumberResponse",
                    &[
                        Field::one("base_type_name", 1, Kind::String),
                        Field::list("extension_number", 2, Kind::Int32),
                    ],
                ),
                Message::of(
                    "ListServiceResponse",
                    &[Field::list(
                        "service",
                        1,
                        Kind::Message(concat!(".", $package, ".ServiceResponse")),
                    )],
                ),
                Message::of("ServiceResponse", &[Field::one("name", 1, Kind::String)]),
                Message::of(
                    "ErrorResponse",
                    &[
                        Field::one("error_code", 1, Kind::Int32),
                        Field::one("error_message", 2, Kind::String),
                    ],
                ),
            ],
            services: &[Service {
                name: "ServerReflection",
                methods: &[Call {
                    asks_many: true,
                    answers_many: true,
                    ..Call::of(
                        "ServerReflectionInfo",
                        concat!(".", $package, ".ServerReflectionRequest"),
                        concat!(".", $package, ".ServerReflectionResponse"),
                    )
                }],
            }],
            ..File::EMPTY
        }
    };
}

pub(super) const REFLECTION: File =
    reflection!("grpc.reflection.v1", "grpc/reflection/v1/reflection.proto");
pub(super) const REFLECTION_ALPHA: File = reflection!(
    "grpc.reflection.v1alpha",
    "grpc/reflection/v1alpha/reflection.proto"
);
