//! Common clients against a real server: redis-cli, redis-benchmark, redis-py.

use std::process::{Command, Stdio};

use tollgate_server::resp::RespLimits;
use tollgate_testkit::peers::python_packages;
use tollgate_testkit::redis::tool;

use super::{Manual, TestRespServer, listen, server};

async fn listening() -> TestRespServer<Manual> {
    listen(server().0, RespLimits::default()).await
}

/// The standard output of a program, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output_text}{error}");
    output_text
}

fn redis_cli(listening: &TestRespServer<Manual>, arguments: &[&str]) -> String {
    let mut command = Command::new(tool("redis-cli"));
    command
        .args(["-p", &listening.address.port().to_string()])
        .args(arguments);
    output(&mut command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli_works_in_both_protocol_versions() {
    let listening = listening().await;
    for (index, version) in ["-2", "-3"].into_iter().enumerate() {
        let key = format!("user{index}");
        let output_text = redis_cli(
            &listening,
            &[version, "CL.THROTTLE", &key, "15", "30", "60", "1"],
        );
        assert_eq!(output_text, "0\n16\n15\n-1\n2\n");
        assert_eq!(redis_cli(&listening, &[version, "PING"]), "PONG\n");
        let output_text = redis_cli(&listening, &[version, "COMMAND", "DOCS"]);
        assert!(output_text.contains("cl.throttle"), "{output_text}");
        let output_text = redis_cli(&listening, &[version, "NOPE"]);
        assert!(
            output_text.starts_with("ERR unknown command 'NOPE'"),
            "{output_text}"
        );
    }
    assert!(redis_cli(&listening, &["-3", "HELLO"]).contains("proto 3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_benchmark_measures_without_a_complaint() {
    let listening = listening().await;
    let mut command = Command::new(tool("redis-benchmark"));
    command
        .args(["-p", &listening.address.port().to_string()])
        .args(["-n", "2000", "-c", "8", "-P", "16", "-r", "100", "--csv"])
        .args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]);
    let output_text = output(&mut command);
    assert!(
        output_text.contains("CL.THROTTLE key:__rand_int__ 15 30 60"),
        "{output_text}"
    );
    assert!(
        !output_text.contains("WARN") && !output_text.contains("rror"),
        "{output_text}"
    );
    assert!(redis_cli(&listening, &["INFO", "stats"]).contains("total_commands_processed:2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_connects_pipelines_and_reads_every_answer() {
    let listening = listening().await;
    let script = "
import sys, redis
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol, client_name='test', socket_timeout=30)
    assert client.ping() is True
    key = 'py%d' % protocol
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command('CL.THROTTLE', key, 99, 1, 60)
    answers = pipeline.execute()
    assert len(answers) == 1000 and sum(answer[0] == 0 for answer in answers) == 100, answers[:3]
    assert answers[0] == [0, 100, 99, -1, 60], answers[0]
    assert client.execute_command('GCRA', key, 1, 1, 0.5) == [0, 2, 1, -1, 1]
    assert client.client_getname() in (b'test', 'test'), client.client_getname()
    assert client.info('server')['redis_version'] == '7.0.0'
    try:
        client.execute_command('CL.THROTTLE', key, 'x', 1, 60)
        raise SystemExit('no error')
    except redis.ResponseError as error:
        assert 'parse as integer: x' in str(error), error
print('fine')
";
    let mut command = Command::new("python3");
    command
        .args(["-c", script, &listening.address.port().to_string()])
        .env("PYTHONPATH", python_packages("redis", "redis==5.2.1"));
    assert_eq!(output(&mut command), "fine\n");
}
