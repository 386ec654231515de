//! Questions and answers in HTTP/1.1 on connections that stay open.
//!
//! Must not know: sockets, what is asked.

use super::resp::{KEY_DIGITS, put_digits};
use super::{Heard, Talk};

/// Requests that differ in the key only.
pub(crate) struct Requests {
    request: Vec<u8>,
    digits: usize,
    /// The status that every response must have.
    status: [u8; 3],
    /// If 200 is right as well, so many hundredths of a response may have it, now.
    exceptions: Option<usize>,
}

/// An admission costs so many hundredths, and every other response earns one.
const EXCEPTION: usize = 100;

impl Requests {
    /// A request with a body, in which `KEY` stands for the key.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        let body = body.replace("KEY", &super::resp::key(0));
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self::of(head + &body)
    }

    /// A request without a body, with `KEY` in its path.
    pub(crate) fn get(path: &str) -> Self {
        let path = path.replace("KEY", &super::resp::key(0));
        Self::of(format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"))
    }

    /// A request without a body, with the key in a field of this name.
    pub(crate) fn get_with_field(name: &str) -> Self {
        let key = super::resp::key(0);
        Self::of(format!(
            "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n{name}: {key}\r\n\r\n"
        ))
    }

    /// What a client of a web service sends, with the key in a field.
    pub(crate) fn api() -> Self {
        let key = super::resp::key(0);
        Self::of(format!(
            "GET /items/7?page=2 HTTP/1.1\r\nhost: api.example\r\nuser-agent: client/1.0\r\naccept: application/json\r\n\
             accept-encoding: gzip\r\nx-api-key: {key}\r\n\r\n"
        ))
    }

    /// The same, of which nearly all are rejected. One in a hundred may be admitted: some servers admit one a minute at least.
    pub(crate) fn rejected(self) -> Self {
        Self {
            status: *b"429",
            exceptions: Some(2 * EXCEPTION),
            ..self
        }
    }

    fn of(text: String) -> Self {
        let digits = text.find(&super::resp::key(0));
        Self {
            digits: digits.unwrap_or(0) + super::resp::key(0).len() - KEY_DIGITS,
            request: text.into_bytes(),
            status: *b"200",
            exceptions: None,
        }
    }
}

impl Requests {
    fn is_right(&mut self, status: [u8; 3]) -> bool {
        let is_status = status == self.status;
        match &mut self.exceptions {
            None => is_status,
            Some(left) if is_status => {
                *left = (*left + 1).min(2 * EXCEPTION);
                true
            }
            Some(left) => {
                let paid = left.checked_sub(EXCEPTION);
                *left = paid.unwrap_or(0);
                paid.is_some() && status == *b"200"
            }
        }
    }
}

impl Talk for Requests {
    fn ask(&mut self, key: u32, out: &mut Vec<u8>) {
        let digits = self.digits..self.digits + KEY_DIGITS;
        if let Some(place) = self.request.get_mut(digits) {
            put_digits(place, key);
        }
        out.extend_from_slice(&self.request);
    }

    fn hear(&mut self, input: &[u8], _out: &mut Vec<u8>) -> Result<Heard, String> {
        let mut heard = Heard::default();
        while let Some((len, status)) = response(input.get(heard.consumed..).unwrap_or_default())? {
            heard.consumed += len;
            heard.answers += 1;
            heard.admitted += usize::from(self.is_right(status));
        }
        Ok(heard)
    }
}

/// The length of the response that the input begins with, and its status; `None` if it is not whole.
fn response(input: &[u8]) -> Result<Option<(usize, [u8; 3])>, String> {
    let Some(head) = find(input, b"\r\n\r\n") else {
        return Ok(None);
    };
    let (status, lines) = input.split_at_checked(head).unwrap_or_default();
    let _rest = lines;
    let length = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| {
            let (name, value) = line.split_at_checked(15)?;
            name.eq_ignore_ascii_case(b"content-length:")
                .then_some(value)
        })
        .and_then(|value| {
            std::str::from_utf8(value)
                .ok()?
                .trim()
                .parse::<usize>()
                .ok()
        })
        .ok_or("a response does not say how long it is")?;
    let whole = head + 4 + length;
    let code = status.get(9..12).and_then(|code| code.try_into().ok());
    let code = code.ok_or("a response has no status")?;
    Ok((input.len() >= whole).then_some((whole, code)))
}

fn find(input: &[u8], what: &[u8]) -> Option<usize> {
    input.windows(what.len()).position(|part| part == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_differ_in_the_key_only_and_say_their_length() {
        let mut requests = Requests::post("/v1/check", r#"{"key":"KEY"}"#);
        let mut out = Vec::new();
        requests.ask(7, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.ends_with("content-length: 26\r\n\r\n{\"key\":\"user000000000007\"}"),
            "{text}"
        );
    }

    #[test]
    fn of_rejected_requests_few_may_be_admitted() {
        let mut requests = Requests::api().rejected();
        let mut right = |status: [u8; 3]| requests.is_right(status);
        assert!(right(*b"429") && right(*b"200") && right(*b"200"));
        assert!(!right(*b"200") && !right(*b"500"));
        assert!((0..EXCEPTION).all(|_| right(*b"429")) && right(*b"200"));
    }

    #[test]
    fn responses_are_counted_when_they_are_whole() {
        let mut requests = Requests::get("/?key=KEY");
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no";
        let heard = requests.hear(input, &mut Vec::new()).unwrap();
        assert_eq!((heard.answers, heard.admitted), (2, 1));
        assert!(
            requests
                .hear(b"HTTP/1.1 200 OK\r\n\r\n", &mut Vec::new())
                .is_err()
        );
    }
}
