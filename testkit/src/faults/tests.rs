//! Every fault does what it says, and nothing does while it is off.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use super::{
    ANY, AcceptMode, AfterRewrite, CloseMode, DataLimit, Direction, Proxy, Slicer, SwallowMode,
};
use crate::clock::{monotonic, since};

/// Far longer than an answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// Short enough to wait for, and longer than an answer takes.
const SOME: Duration = Duration::from_millis(400);

/// A server that sends back whatever it gets, on threads that end with the test's process.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let mut reader = stream;
                // An end is passed on as an end.
                std::io::copy(&mut reader, &mut writer).ok();
                writer.shutdown(std::net::Shutdown::Write).ok();
            });
        }
    });
    address
}

/// A server that answers every command in a line with `+`, its number and its name.
fn redis() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                use std::io::BufRead as _;
                let mut writer = stream.try_clone().unwrap();
                let lines = std::io::BufReader::new(stream).lines();
                for (number, line) in lines.map_while(Result::ok).enumerate() {
                    write!(writer, "+{number} {line}\r\n").ok();
                }
            });
        }
    });
    address
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn say(stream: &mut TcpStream, words: &str) {
    stream.write_all(words.as_bytes()).unwrap();
}

/// So many bytes.
fn hear(stream: &mut TcpStream, count: usize) -> Result<String, ErrorKind> {
    let mut bytes = vec![0; count];
    stream
        .read_exact(&mut bytes)
        .map_err(|error| error.kind())?;
    Ok(String::from_utf8(bytes).unwrap())
}

/// A line's answer, through and back.
fn echoed(stream: &mut TcpStream, words: &str) -> Result<String, ErrorKind> {
    stream
        .write_all(words.as_bytes())
        .map_err(|error| error.kind())?;
    hear(stream, words.len())
}

/// How long an answer took.
fn taken(stream: &mut TcpStream, words: &str) -> Duration {
    let began = monotonic();
    assert_eq!(echoed(stream, words).as_deref(), Ok(words));
    since(began)
}

/// Whether nothing comes for a while.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SOME)).unwrap();
    let heard = hear(stream, 1);
    stream.set_read_timeout(Some(LONG)).unwrap();
    matches!(heard, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn bytes_pass_as_they_are_and_are_counted() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    let long = "not a command\u{7f}".repeat(50_000);
    let mut sender = stream.try_clone().unwrap();
    let sent = long.clone();
    let sending = std::thread::spawn(move || say(&mut sender, &sent));
    assert_eq!(hear(&mut stream, long.len()).unwrap(), long);
    sending.join().unwrap();
    let counters = proxy.counters();
    assert_eq!(counters.bytes_there, long.len() as u64);
    assert_eq!(counters.bytes_back, long.len() as u64);
    assert_eq!((counters.connects, proxy.open()), (1, 1));
    // An end is passed on, and comes back.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(hear(&mut stream, 1), Err(ErrorKind::UnexpectedEof));
}

#[test]
fn latency_delays_each_way_and_only_while_it_is_on() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    assert!(taken(&mut stream, "before\n") < SOME);
    proxy.change(|toxics| {
        toxics.there.latency = SOME / 2;
        toxics.back.latency = SOME / 2;
    });
    assert!(taken(&mut stream, "during\n") >= SOME);
    proxy.heal();
    assert!(taken(&mut stream, "after\n") < SOME);
}

#[test]
fn jitter_is_within_its_bounds_and_the_same_for_the_same_seed() {
    let flow = super::FlowToxics {
        latency: Duration::from_millis(50),
        jitter: Duration::from_millis(30),
        ..super::FlowToxics::default()
    };
    let delays = |seed: u64| {
        let shared = std::sync::Arc::new(super::proxy_state::ProxyState::new(echo(), seed));
        let asked = super::flow::ForwardedCommand::default();
        let mut pass = super::flow::FlowOptions::new(Direction::Back, 3, &shared, &asked);
        (0..50).map(|_| pass.delay(&flow)).collect::<Vec<_>>()
    };
    let (some, same, others) = (delays(1), delays(1), delays(2));
    assert!(some == same && some != others);
    let bounds = Duration::from_millis(20)..=Duration::from_millis(80);
    assert!(some.iter().all(|delay| bounds.contains(delay)), "{some:?}");
    let shared = std::sync::Arc::new(super::proxy_state::ProxyState::new(echo(), 1));
    let asked = super::flow::ForwardedCommand::default();
    let mut pass = super::flow::FlowOptions::new(Direction::Back, 3, &shared, &asked);
    assert_eq!(pass.delay(&super::FlowToxics::default()), Duration::ZERO);
}

#[test]
fn bandwidth_is_a_bound_on_bytes_in_a_second() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    let words = "x".repeat(4_999) + "\n";
    assert!(taken(&mut stream, &words) < SOME);
    proxy.change(|toxics| toxics.back.bandwidth = NonZeroU64::new(10_000));
    assert!(taken(&mut stream, &words) >= SOME);
    proxy.heal();
    assert!(taken(&mut stream, &words) < SOME);
}

#[test]
fn slices_come_one_by_one() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    let mut reads = |proxy: &Proxy| {
        say(&mut stream, "0123456789\n");
        let (mut heard, mut reads) = (0, 0);
        while heard < 11 {
            heard += stream.read(&mut [0; 64]).unwrap();
            reads += 1;
        }
        assert_eq!(proxy.open(), 1);
        reads
    };
    assert_eq!(reads(&proxy), 1);
    proxy.change(|toxics| {
        toxics.back.slices = Some(Slicer {
            bytes: NonZeroUsize::MIN,
            pause: Duration::from_millis(30),
        });
    });
    assert!(reads(&proxy) > 5, "it came in slices");
    proxy.heal();
    assert_eq!(reads(&proxy), 1);
}

#[test]
fn a_limit_ends_each_connection_after_its_bytes_as_it_says() {
    let proxy = Proxy::to(echo());
    let mut before = client(&proxy);
    assert_eq!(echoed(&mut before, "0123456789\n").unwrap().len(), 11);
    for (ending, seen) in [
        (CloseMode::Close, ErrorKind::UnexpectedEof),
        (CloseMode::Reset, ErrorKind::ConnectionReset),
    ] {
        proxy.change(|toxics| toxics.back.limit = Some(DataLimit { bytes: 4, ending }));
        let mut stream = client(&proxy);
        say(&mut stream, "0123456789\n");
        // A reset may overtake the bytes before it; a close may not.
        let first = hear(&mut stream, 4);
        assert!(first.as_deref() == Ok("0123") || ending == CloseMode::Reset);
        assert_eq!(hear(&mut stream, 1), Err(seen), "{ending:?}");
    }
    proxy.heal();
    assert_eq!(
        echoed(&mut client(&proxy), "0123456789\n").unwrap().len(),
        11
    );
}

#[test]
fn silence_holds_bytes_until_it_is_over_or_loses_them_for_good() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    assert_eq!(echoed(&mut stream, "before\n").as_deref(), Ok("before\n"));
    proxy.change(|toxics| toxics.back.silence = SwallowMode::Held);
    say(&mut stream, "held\n");
    assert!(is_silent(&mut stream));
    proxy.heal();
    assert_eq!(hear(&mut stream, 5).as_deref(), Ok("held\n"));

    proxy.change(|toxics| toxics.there.silence = SwallowMode::Lost);
    say(&mut stream, "lost\n");
    assert!(is_silent(&mut stream));
    proxy.heal();
    say(&mut stream, "as well\n");
    assert!(is_silent(&mut stream), "a forgotten connection stays so");
    assert_eq!(echoed(&mut client(&proxy), "new\n").as_deref(), Ok("new\n"));
}

#[test]
fn connections_are_reset_or_closed_when_a_test_says_so() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    assert_eq!(echoed(&mut stream, "before\n").as_deref(), Ok("before\n"));
    proxy.reset();
    assert_eq!(hear(&mut stream, 1), Err(ErrorKind::ConnectionReset));
    let mut stream = client(&proxy);
    assert_eq!(echoed(&mut stream, "again\n").as_deref(), Ok("again\n"));
    proxy.close();
    assert_eq!(hear(&mut stream, 1), Err(ErrorKind::UnexpectedEof));
    assert_eq!(proxy.open(), 0);
}

#[test]
fn half_a_connection_is_closed_and_the_other_half_goes_on() {
    let proxy = Proxy::to(echo());
    let mut stream = client(&proxy);
    assert_eq!(echoed(&mut stream, "before\n").as_deref(), Ok("before\n"));
    proxy.half_close(Direction::Back);
    assert_eq!(hear(&mut stream, 1), Err(ErrorKind::UnexpectedEof));
    let before = proxy.counters().bytes_there;
    say(&mut stream, "still taken\n");
    let taken = |happened: &super::proxy_state::ProxyEvents| happened.counters.bytes_there > before;
    assert!(proxy.shared().wait(taken));
}

#[test]
fn a_closed_door_refuses_and_one_that_resets_counts() {
    let proxy = Proxy::to(echo());
    assert_eq!(echoed(&mut client(&proxy), "a\n").as_deref(), Ok("a\n"));
    proxy.go_down();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.come_up();
    assert_eq!(echoed(&mut client(&proxy), "b\n").as_deref(), Ok("b\n"));
    let before = proxy.counters().connects;
    proxy.change(|toxics| toxics.door = AcceptMode::Reset);
    let mut stream = client(&proxy);
    assert!(hear(&mut stream, 1).is_err());
    assert_eq!(proxy.counters().connects, before + 1);
    proxy.heal();
    assert_eq!(echoed(&mut client(&proxy), "c\n").as_deref(), Ok("c\n"));
}

#[test]
fn new_connections_are_led_to_another_server_and_open_ones_stay() {
    let proxy = Proxy::to(echo());
    let mut old = client(&proxy);
    assert_eq!(echoed(&mut old, "PING\n").as_deref(), Ok("PING\n"));
    proxy.lead_to(redis());
    let mut new = client(&proxy);
    say(&mut new, "PING\n");
    assert_eq!(hear(&mut new, 9).as_deref(), Ok("+0 PING\r\n"));
    assert_eq!(echoed(&mut old, "PING\n").as_deref(), Ok("PING\n"));
    // Where nobody is, clients are reset, and that is counted.
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nowhere.local_addr().unwrap();
    drop(nowhere);
    proxy.lead_to(address);
    assert!(hear(&mut client(&proxy), 1).is_err());
    assert_eq!(proxy.counters().unreached, 1);
}

#[test]
fn commands_are_counted_by_name_and_replies_meddled_with_by_command() {
    let proxy = Proxy::to(redis());
    let mut stream = client(&proxy);
    say(&mut stream, "GET a\nSET b\n");
    assert_eq!(hear(&mut stream, 20).unwrap(), "+0 GET a\r\n+1 SET b\r\n");
    let counters = proxy.counters();
    assert_eq!((counters.commands("GET"), counters.commands("SET")), (1, 1));
    assert_eq!((counters.all_commands(), counters.meddled), (2, 0));

    proxy.answer_with_error("SET", 1, "OOM no");
    say(&mut stream, "GET c\nSET d\nSET e\n");
    let heard = hear(&mut stream, 29).unwrap();
    assert_eq!(heard, "+2 GET c\r\n-OOM no\r\n+4 SET e\r\n");
    assert_eq!(proxy.counters().meddled, 1);

    proxy.lose_replies("GET", 1, AfterRewrite::GoOn);
    say(&mut stream, "GET f\nGET g\n");
    assert_eq!(hear(&mut stream, 10).unwrap(), "+6 GET g\r\n");

    proxy.lose_replies(ANY, 1, AfterRewrite::End(CloseMode::Reset));
    say(&mut stream, "GET h\n");
    assert_eq!(hear(&mut stream, 1), Err(ErrorKind::ConnectionReset));
    assert_eq!(proxy.counters().commands("GET"), 5, "the server had it");
    proxy.lose_replies(ANY, u64::MAX, AfterRewrite::GoOn);
    proxy.stop_meddling();
    let mut stream = client(&proxy);
    say(&mut stream, "GET i\n");
    assert_eq!(hear(&mut stream, 10).unwrap(), "+0 GET i\r\n");
}
