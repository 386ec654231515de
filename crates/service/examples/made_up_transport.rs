//! A made-up transport over [`RateLimitService`]: it reads `CHECK <user>` and `DONE <ticket>` and writes one line for each.
//!
//! It decides, sends the header fields and settles tickets; the service does everything else. Must not know: stores, limits,
//! dialects.

use tollgate_engine::CheckOptions;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_service::{HeaderFields, RateLimitService, Refusal, Secret, TakenTicket, Transport};
use tollgate_store::{Clock, SystemClock};

/// The attributes of a request: its user.
struct User<'a>(&'a str);

impl Attributes for User<'_> {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let is_user = matches!(attribute, Attribute::Header(name) if &**name == "x-user");
        is_user.then_some(self.0.as_bytes())
    }
}

async fn handle_line<C: Clock>(service: &RateLimitService<C>, line: &str) -> String {
    match line.split_once(' ') {
        Some(("CHECK", user)) => check(service, &User(user)).await,
        Some(("DONE", id)) => {
            let id = u128::from_str_radix(id, 16).unwrap_or_default();
            match service.take_ticket(id).await {
                TakenTicket::Open(ticket) => format!("{:?}", service.respond(ticket, &200).await),
                other => format!("{other:?}"),
            }
        }
        _ => "unknown command".to_owned(),
    }
}

async fn check<C: Clock>(service: &RateLimitService<C>, user: &User<'_>) -> String {
    let options = CheckOptions::default();
    let mut verdict = service.check(Transport::Resp, user, options).await;
    let mut reply = match Refusal::from_verdict(&verdict) {
        None => "OK".to_owned(),
        Some(refusal) => refusal.status.to_string(),
    };
    if let Some(ticket) = service.issue_ticket(&mut verdict) {
        reply.push_str(&format!(" ticket={ticket:x}"));
    }
    let mut fields = HeaderFields::new();
    service.fields(&verdict, &mut fields);
    for (name, value) in fields.iter() {
        reply.push_str(&format!(" {name}={}", String::from_utf8_lossy(value)));
    }
    reply
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = tollgate_service::demo_policy()?;
    let (clock, secret) = (SystemClock::new(), Secret::random());
    let service = RateLimitService::new(&policy, 1_000, clock, secret)?;
    for line in std::io::stdin().lines() {
        println!("{}", handle_line(&service, &line?).await);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::source::SourceFormat;

    #[tokio::test]
    async fn a_transport_decides_sends_fields_and_settles_a_ticket() {
        let text = "limits: [{ name: jobs, key: header.x-user, concurrency: 1 }]";
        let policy = tollgate_policy::load(text, "jobs.yaml", SourceFormat::Yaml).unwrap();
        let (clock, secret) = (SystemClock::new(), Secret::random());
        let service = RateLimitService::new(&policy, 1_000, clock, secret).unwrap();
        let first = handle_line(&service, "CHECK ada").await;
        assert!(first.starts_with("OK ticket="), "{first}");
        assert!(
            first.contains(r#" ratelimit-policy="jobs";q=1;qu="#),
            "{first}"
        );
        let second = handle_line(&service, "CHECK ada").await;
        assert!(
            second.starts_with("429 ") && second.contains("r=0"),
            "{second}"
        );
        let done = first.split([' ', '=']).nth(2).unwrap();
        let done = format!("DONE {done}");
        assert_eq!(handle_line(&service, &done).await, "Ok(())");
        assert_eq!(handle_line(&service, &done).await, "AlreadySettled");
        assert!(handle_line(&service, "CHECK ada").await.starts_with("OK"));
    }
}
