//! Server reflection: the services and the descriptors of their messages, for tools without `.proto` files.
//!
//! Must not know: connections, streams.

use super::schema::{FileDescriptor, files};
use super::status::{GrpcCode, GrpcStatus};
use super::wire::{MessageFields, MessageWriter, WireError, WireValue, text};

/// A reflection request.
enum ReflectionRequest<'a> {
    Nothing,
    FileByName(&'a str),
    FileBySymbol(&'a str),
    Extensions(&'a str),
    Services,
}

/// Answers one `ServerReflectionRequest`.
pub(super) fn respond(message: &[u8], out: &mut Vec<u8>) -> Result<(), GrpcStatus> {
    let (host, request) = parse_request(message)
        .map_err(|malformed| GrpcStatus::new(GrpcCode::InvalidArgument, malformed.to_string()))?;
    let mut writer = MessageWriter::new(out);
    writer.text(1, host.as_bytes());
    writer.bytes(2, message);
    match request {
        ReflectionRequest::FileByName(name) => {
            let found = files().find(|file| file.name() == name);
            write_files(found, &mut writer);
        }
        ReflectionRequest::FileBySymbol(symbol) => {
            let found = files().find(|file| file.defines(symbol));
            write_files(found, &mut writer);
        }
        ReflectionRequest::Extensions(name) => writer.message(5, |writer| {
            // proto3 messages have no extensions.
            writer.text(1, name.as_bytes());
        }),
        ReflectionRequest::Services => writer.message(6, |writer| {
            for name in files().flat_map(FileDescriptor::services) {
                writer.message(1, |writer| writer.text(1, name.as_bytes()));
            }
        }),
        ReflectionRequest::Nothing => {
            write_error(
                GrpcCode::InvalidArgument,
                "the request is empty",
                &mut writer,
            );
        }
    }
    Ok(())
}

fn parse_request(message: &[u8]) -> Result<(&str, ReflectionRequest<'_>), WireError> {
    let mut host = "";
    let mut request = ReflectionRequest::Nothing;
    let mut fields = MessageFields::new(message);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) => host = text(bytes, "host")?,
            (3, WireValue::Bytes(bytes)) => {
                request = ReflectionRequest::FileByName(text(bytes, "file_by_filename")?);
            }
            (4, WireValue::Bytes(bytes)) => {
                request = ReflectionRequest::FileBySymbol(text(bytes, "file_containing_symbol")?);
            }
            (5, WireValue::Bytes(_)) => request = ReflectionRequest::FileBySymbol(""),
            (6, WireValue::Bytes(bytes)) => {
                request =
                    ReflectionRequest::Extensions(text(bytes, "all_extension_numbers_of_type")?);
            }
            (7, WireValue::Bytes(_)) => request = ReflectionRequest::Services,
            _ => {}
        }
    }
    Ok((host, request))
}

/// Writes a file and all its transitive imports, importing files first.
fn write_files(found: Option<FileDescriptor>, writer: &mut MessageWriter<'_>) {
    let Some(found) = found else {
        return write_error(
            GrpcCode::NotFound,
            "there is no such file or symbol",
            writer,
        );
    };
    let mut written = vec![found];
    let mut next = 0;
    while let Some(file) = written.get(next).copied() {
        next += 1;
        for imported in files().filter(|other| file.imports(other.name())) {
            if !written.contains(&imported) {
                written.push(imported);
            }
        }
    }
    writer.message(4, |writer| {
        for file in written {
            writer.bytes(1, file.bytes);
        }
    });
}

fn write_error(code: GrpcCode, message: &str, writer: &mut MessageWriter<'_>) {
    writer.message(7, |writer| {
        writer.number(1, code as u64);
        writer.text(2, message.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reflect(field: u32, text: &str) -> Vec<(u64, Vec<u8>)> {
        let (mut request, mut out) = (Vec::new(), Vec::new());
        MessageWriter::new(&mut request).bytes(field, text.as_bytes());
        respond(&request, &mut out).unwrap();
        let mut fields = MessageFields::new(&out);
        let mut read = Vec::new();
        while let Some((number, WireValue::Bytes(bytes))) = fields.next_field().unwrap() {
            read.push((number, bytes.to_vec()));
        }
        read
    }

    fn count(message: &[u8]) -> usize {
        let mut fields = MessageFields::new(message);
        let mut count = 0;
        while fields.next_field().unwrap().is_some() {
            count += 1;
        }
        count
    }

    #[test]
    fn services_are_listed_and_files_come_with_their_imports() {
        let listed = reflect(7, "");
        assert_eq!((listed[1].0, count(&listed[1].1)), (6, 5));
        let files = reflect(4, "envoy.service.ratelimit.v3.RateLimitService");
        assert_eq!((files[1].0, count(&files[1].1)), (4, 8));
        let quotas = reflect(4, "envoy.service.rate_limit_quota.v3.RateLimitQuotaService");
        assert_eq!((quotas[1].0, count(&quotas[1].1)), (4, 6));
        let file = reflect(3, "google/protobuf/duration.proto");
        assert_eq!((file[1].0, count(&file[1].1)), (4, 1));
    }

    #[test]
    fn an_unknown_symbol_is_an_error_in_the_response() {
        for (field, text) in [(3, "nowhere.proto"), (4, "no.such.Symbol"), (1, "host")] {
            let response = reflect(field, text);
            assert_eq!(response.last().unwrap().0, 7, "{text}");
        }
        assert!(respond(&[0x22, 9], &mut Vec::new()).is_err());
    }
}
