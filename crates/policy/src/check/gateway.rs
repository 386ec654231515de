//! Checks that every route has an upstream and can be reached, and that TLS settings are for `https` addresses.
//!
//! Must not know: how requests are forwarded.

use std::collections::HashMap;

use crate::grammar::{nearest_name, quote};
use crate::model::{Policy, UpstreamProtocol, UpstreamTlsSpec};
use crate::read::DiagnosticSink;

pub(super) fn check(policy: &Policy, sink: &mut DiagnosticSink) {
    let Some(gateway) = &policy.gateway else {
        return;
    };
    let names = || {
        gateway
            .upstreams
            .iter()
            .map(|upstream| &*upstream.name.value)
    };
    let mut known = HashMap::new();
    for route in &gateway.routes {
        let (name, location) = (&*route.upstream.value, route.upstream.location);
        if !names().any(|known| known == name) {
            let help = match nearest_name(name, names()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "add it to `upstreams`".to_owned(),
            };
            sink.add(
                location,
                format!("there is no upstream {}", quote(name)),
                help,
            );
        }
        let target = (&route.host, &route.path);
        if let Some(first) = known.insert(target, location) {
            let host = route.host.as_deref().unwrap_or("every host");
            sink.add(
                location,
                format!("a second route for {host} and `{}`", route.path),
                format!("remove one of the two; the first is on line {}", first.line),
            );
        }
    }
    for upstream in &gateway.upstreams {
        let mut addresses = upstream.addresses.iter();
        let has_https = addresses.any(|one| one.address.protocol == UpstreamProtocol::Https);
        if upstream.tls != UpstreamTlsSpec::default() && !has_https {
            sink.add(
                upstream.name.location,
                format!(
                    "upstream `{}` has `tls` and no `https` address",
                    upstream.name.value
                ),
                "begin its addresses with `https://`, or leave `tls` out",
            );
        }
    }
}
