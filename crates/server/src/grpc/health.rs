//! `grpc.health.v1`: whether the server is ready, for load balancers and probes.
//!
//! It is ready until it starts to shut down, unless it is stalled. The state of the store does not matter. Must not know:
//! connections, streams.

use super::methods::{
    GrpcMethod, HEALTH_SERVICE, REFLECTION_SERVICE, REFLECTION_V1ALPHA_SERVICE, RLQS_SERVICE,
    RLS_SERVICE,
};
use super::status::{GrpcCode, GrpcStatus};
use super::wire::{MessageFields, MessageWriter, WireError, WireValue, text};

/// The services with a health status. The empty name is the server as a whole; `ratelimit` is the name that probes of
/// envoyproxy/ratelimit use.
const SERVICES: [&str; 7] = [
    "",
    RLS_SERVICE,
    RLQS_SERVICE,
    "ratelimit",
    HEALTH_SERVICE,
    REFLECTION_SERVICE,
    REFLECTION_V1ALPHA_SERVICE,
];

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

/// Answers a check, a list or a watch.
pub(super) fn respond(
    method: GrpcMethod,
    message: &[u8],
    is_serving: bool,
    out: &mut Vec<u8>,
) -> Result<(), GrpcStatus> {
    let health = if is_serving { SERVING } else { NOT_SERVING };
    let mut writer = MessageWriter::new(out);
    if method == GrpcMethod::HealthList {
        for service in SERVICES {
            writer.message(1, |writer| {
                writer.text(1, service.as_bytes());
                writer.message(2, |writer| writer.number(1, health));
            });
        }
        return Ok(());
    }
    let service = parse_service(message)
        .map_err(|malformed| GrpcStatus::new(GrpcCode::InvalidArgument, malformed.to_string()))?;
    if SERVICES.contains(&service) {
        writer.number(1, health);
    } else if method == GrpcMethod::HealthWatch {
        writer.number(1, SERVICE_UNKNOWN);
    } else {
        return Err(GrpcStatus::new(
            GrpcCode::NotFound,
            "there is no service of this name",
        ));
    }
    Ok(())
}

fn parse_service(message: &[u8]) -> Result<&str, WireError> {
    let mut service = "";
    let mut fields = MessageFields::new(message);
    while let Some(field) = fields.next_field()? {
        if let (1, WireValue::Bytes(bytes)) = field {
            service = text(bytes, "service")?;
        }
    }
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: GrpcMethod, service: &str, is_serving: bool) -> Result<Vec<u8>, GrpcCode> {
        let (mut request, mut out) = (Vec::new(), Vec::new());
        MessageWriter::new(&mut request).text(1, service.as_bytes());
        match respond(method, &request, is_serving, &mut out) {
            Ok(()) => Ok(out),
            Err(status) => Err(status.code),
        }
    }

    #[test]
    fn the_server_is_ready_until_it_stops() {
        for service in SERVICES {
            assert_eq!(
                check(GrpcMethod::HealthCheck, service, true),
                Ok(vec![8, 1])
            );
            assert_eq!(
                check(GrpcMethod::HealthCheck, service, false),
                Ok(vec![8, 2])
            );
        }
        let list = check(GrpcMethod::HealthList, "", true).unwrap();
        let mut fields = MessageFields::new(&list);
        let mut count = 0;
        while let Some((number, _)) = fields.next_field().unwrap() {
            assert_eq!(number, 1);
            count += 1;
        }
        assert_eq!(count, SERVICES.len());
    }

    #[test]
    fn an_unknown_service_is_not_found_but_may_be_watched() {
        assert_eq!(
            check(GrpcMethod::HealthCheck, "nobody", true),
            Err(GrpcCode::NotFound)
        );
        assert_eq!(
            check(GrpcMethod::HealthWatch, "nobody", true),
            Ok(vec![8, 3])
        );
        let garbage = respond(GrpcMethod::HealthCheck, &[0x0a, 9], true, &mut Vec::new());
        assert_eq!(garbage.unwrap_err().code, GrpcCode::InvalidArgument);
    }
}
