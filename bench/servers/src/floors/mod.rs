//! Floors: servers that read and write the same bytes as ours and decide nothing. What we cost beyond them is ours.
//!
//! Each runs in a process of its own, on the same runtime and with as many workers as the program that is measured. The
//! answer is one that our server gave, handed over as hexadecimal digits. Must not know: how anything is measured.

mod composed;
mod grpc;
mod http;
mod resp;
pub(crate) mod rls;
mod upstream;

use std::net::SocketAddr;

/// The word that makes this program a floor.
pub(crate) const CHILD: &str = "floor";

/// The upstream of proxies, which is told no answer.
pub(crate) const UPSTREAM: &str = "upstream";

/// The child: `floor KIND ADDRESS ANSWER`, and the length of a command, or where a store is and the words of a call.
pub(crate) fn child(words: &[String]) -> Result<(), String> {
    if let [kind, address] = words
        && kind == UPSTREAM
    {
        let address = address.parse();
        return upstream::serve(address.map_err(|error| format!("{words:?}: {error}"))?);
    }
    let [kind, address, answer, rest @ ..] = words else {
        return Err(format!(
            "usage: {CHILD} resp|http|grpc|grpc-call ADDRESS ANSWER [LEN | STORE WORD…]"
        ));
    };
    let address: SocketAddr = address
        .parse()
        .map_err(|error| format!("{address}: {error}"))?;
    let answer = from_hex(answer).ok_or("the answer is not hexadecimal")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    match (kind.as_str(), rest) {
        ("resp", [len]) => {
            let len = len.parse().map_err(|error| format!("{len}: {error}"))?;
            runtime.block_on(resp::serve(address, len, answer))
        }
        ("http", []) => runtime.block_on(http::serve(address, &answer)),
        ("grpc", []) => runtime.block_on(grpc::serve(address, &answer)),
        ("grpc-call", [store, call @ ..]) => {
            let call: Option<Vec<Vec<u8>>> = call.iter().map(|word| from_hex(word)).collect();
            let call = call.ok_or("a word of the call is not hexadecimal")?;
            runtime.block_on(composed::serve(address, &answer, store, call))
        }
        _ => Err(format!("there is no floor `{kind}`")),
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_through_the_command_line() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0g"), None);
    }
}
