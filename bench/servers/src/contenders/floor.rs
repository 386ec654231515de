//! The floors as contenders: each is told an answer of ours and started beside it.
//!
//! Must not know: how anything is measured.

use std::process::Command;
use std::rc::Rc;

use super::store::Call;
use super::{Contender, Ours, Store, StoreKind};
use crate::floors::{CHILD, to_hex};
use crate::load;
use crate::measurements::Role;
use crate::process::{Server, free_addresses};

pub(crate) fn resp(ours: &Contender) -> Result<Contender, String> {
    let commands = Ours::commands();
    let rest = [commands.len().to_string()];
    floor("bare echo on tokio", "resp", ours, &rest, Ok)
}

pub(crate) fn http(ours: &Contender) -> Result<Contender, String> {
    floor("bare hyper", "http", ours, &[], Ok)
}

pub(crate) fn grpc(ours: &Contender) -> Result<Contender, String> {
    floor("bare tonic", "grpc", ours, &[], |answer| message(&answer))
}

/// Bare tonic that makes a call of a store before it answers, through the client that we use.
pub(crate) fn tonic_and_call(
    ours: &Contender,
    store: &Store,
    call: &Call,
) -> Result<Contender, String> {
    let mut rest = vec![store.address.to_string()];
    rest.extend(call.0.iter().map(|word| to_hex(word)));
    let name = "bare tonic and bare EVALSHA";
    let floor = floor(name, "grpc-call", ours, &rest, |answer| message(&answer))?;
    Ok(floor.calling(Some(&store.server)))
}

fn message(answer: &[u8]) -> Result<Vec<u8>, String> {
    load::grpc::message(answer).ok_or_else(|| "there is no message in the answer".to_owned())
}

fn floor(
    name: &'static str,
    kind: &str,
    ours: &Contender,
    rest: &[String],
    part: impl Fn(Vec<u8>) -> Result<Vec<u8>, String>,
) -> Result<Contender, String> {
    let answer = part(load::sample(ours.address, &mut *(ours.talk)())?)?;
    let [address] = free_addresses()?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(this);
    command.args([CHILD, kind, &address.to_string(), &to_hex(&answer)]);
    command.args(rest);
    let server = Rc::new(Server::start(&mut command, &[address])?);
    Ok(Contender {
        name,
        address,
        talk: Rc::clone(&ours.talk),
        fill: None,
        has_states: false,
        pipelines: true,
        server,
        is_on_load_core: false,
        store: None,
        store_kind: StoreKind::Redis,
        role: Role::Floor,
    })
}
