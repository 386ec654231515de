//! The Redis server that a fleet shares, and the call that a node makes there: seen as it goes by, and made again by a floor.
//!
//! Must not know: how anything is measured, what is in the call.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use super::Contender;
use super::article::redis_server;
use crate::cores::Placement;
use crate::load;
use crate::process::Server;

/// How long a call may take to go by.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running redis-server. It ends when this is dropped.
pub(crate) struct Store {
    pub(crate) server: Rc<Server>,
    pub(crate) address: SocketAddr,
}

/// The words of one call, from `EVALSHA` on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call(pub(crate) Vec<Vec<u8>>);

impl Store {
    pub(crate) fn start() -> Result<Self, String> {
        // Beside the load, so that the measured server has its core to itself.
        let (server, address) = redis_server(Placement::LoadCore, None)?;
        Ok(Self {
            server: Rc::new(server),
            address,
        })
    }

    /// The call that a node makes when it is asked.
    pub(crate) fn call_of(&self, node: &Contender) -> Result<Call, String> {
        let failed = |error: std::io::Error| format!("MONITOR: {error}");
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
        stream.set_read_timeout(Some(DEADLINE)).map_err(failed)?;
        stream.write_all(b"MONITOR\r\n").map_err(failed)?;
        let mut lines = BufReader::new(stream).lines();
        // `+OK`: whatever is called from here on is shown.
        lines.next().transpose().map_err(failed)?;
        load::sample(node.address, &mut *(node.talk)())?;
        for line in lines {
            let words = words(&line.map_err(failed)?);
            let is_decision = words.first().is_some_and(|word| word == b"EVALSHA")
                && words.get(2).is_some_and(|count| count == b"1");
            if is_decision {
                return Ok(Call(words));
            }
        }
        Err("the node has called nothing".to_owned())
    }
}

/// The words that `MONITOR` shows, each in quotes: what cannot be printed is escaped.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut letters = line.bytes().skip_while(|letter| *letter != b']');
    while letters.any(|letter| letter == b'"') {
        let mut word = Vec::new();
        while let Some(letter) = letters.next() {
            match letter {
                b'"' => break,
                b'\\' => match letters.next() {
                    Some(b'x') => {
                        let mut digit = || char::from(letters.next()?).to_digit(16);
                        let byte = digit().zip(digit()).map(|(high, low)| high * 16 + low);
                        word.extend(byte.and_then(|byte| u8::try_from(byte).ok()));
                    }
                    Some(b'n') => word.push(b'\n'),
                    Some(b'r') => word.push(b'\r'),
                    Some(b't') => word.push(b'\t'),
                    Some(b'a') => word.push(7),
                    Some(b'b') => word.push(8),
                    Some(other) => word.push(other),
                    None => {}
                },
                letter => word.push(letter),
            }
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_sent() {
        let line = r#"1700000000.1 [0 127.0.0.1:1] "EVALSHA" "ab" "1" "k\"]" "" "\x01\x02\\\n\a""#;
        let read = words(line);
        let sent: [&[u8]; 6] = [b"EVALSHA", b"ab", b"1", b"k\"]", b"", b"\x01\x02\\\n\x07"];
        assert!(read.iter().eq(sent), "{read:?}");
        assert!(words("+OK").is_empty());
    }
}
