//! Messages of protobuf itself that others use.
//!
//! Must not know: how messages are read, written or answered.

use super::{Enum, Field, File, Kind, Message};

const PACKAGE: &str = "google.protobuf";
const INSTANT: &[Field] = &[
    Field::one("seconds", 1, Kind::Int64),
    Field::one("nanos", 2, Kind::Int32),
];

pub(super) const DURATION: File = File {
    name: "google/protobuf/duration.proto",
    package: PACKAGE,
    messages: &[Message::of("Duration", INSTANT)],
    ..File::EMPTY
};

pub(super) const TIMESTAMP: File = File {
    name: "google/protobuf/timestamp.proto",
    package: PACKAGE,
    messages: &[Message::of("Timestamp", INSTANT)],
    ..File::EMPTY
};

pub(super) const WRAPPERS: File = File {
    name: "google/protobuf/wrappers.proto",
    package: PACKAGE,
    messages: &[
        Message::of("UInt64Value", &[Field::one("value", 1, Kind::Uint64)]),
        Message::of("UInt32Value", &[Field::one("value", 1, Kind::Uint32)]),
    ],
    ..File::EMPTY
};

pub(super) const STRUCT: File = File {
    name: "google/protobuf/struct.proto",
    package: PACKAGE,
    messages: &[
        Message {
            name: "Struct",
            fields: &[Field::list(
                "fields",
                1,
                Kind::Message(".google.protobuf.Struct.FieldsEntry"),
            )],
            messages: &[Message {
                name: "FieldsEntry",
                fields: &[
                    Field::one("key", 1, Kind::String),
                    Field::one("value", 2, Kind::Message(".google.protobuf.Value")),
                ],
                is_pair: true,
                ..Message::EMPTY
            }],
            ..Message::EMPTY
        },
        Message {
            name: "Value",
            fields: &[
                Field::choice("null_value", 1, Kind::Enum(".google.protobuf.NullValue")),
                Field::choice("number_value", 2, Kind::Double),
                Field::choice("string_value", 3, Kind::String),
                Field::choice("bool_value", 4, Kind::Bool),
                Field::choice("struct_value", 5, Kind::Message(".google.protobuf.Struct")),
                Field::choice("list_value", 6, Kind::Message(".google.protobuf.ListValue")),
            ],
            choices: &["kind"],
            ..Message::EMPTY
        },
        Message::of(
            "ListValue",
            &[Field::list(
                "values",
                1,
                Kind::Message(".google.protobuf.Value"),
            )],
        ),
    ],
    enums: &[Enum {
        name: "NullValue",
        values: &[("NULL_VALUE", 0)],
    }],
    ..File::EMPTY
};
