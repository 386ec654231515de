//! What the script of a web page sees of a refusal, in a real browser: CORS fields must be on it, and the rate limit fields exposed.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use http::HeaderName;
use http::header::RETRY_AFTER;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_testkit::chromium::Chromium;
use tower_http::cors::{Any, CorsLayer};

use super::support::{TestLayer, layer};

/// Far above what a browser needs to start; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asks each service three times, with a field that makes the browser send a preflight first, and reports what it can read.
const SCRIPT: &str = r#"<!doctype html><script>
async function ask(url) {
  try {
    const answer = await fetch(url, { headers: { "x-page": "1" } });
    const field = (name) => answer.headers.get(name);
    return [answer.status, field("retry-after"), field("ratelimit"), field("ratelimit-policy")].join(" | ");
  } catch (error) {
    return error.name;
  }
}
(async () => {
  const lines = [];
  for (const url of URLS) for (let n = 0; n < 3; n++) lines.push(await ask(url));
  await fetch("/report", { method: "POST", body: lines.join("\n") });
})();
</script>"#;

const POLICY: &str = "limits: [{ name: all, rate: 2/h }]";

fn cors() -> CorsLayer {
    let exposed = ["ratelimit", "ratelimit-policy"].map(HeaderName::from_static);
    let [ratelimit, policy] = exposed;
    CorsLayer::new()
        .allow_origin(Any)
        .allow_headers(Any)
        .expose_headers([RETRY_AFTER, ratelimit, policy])
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// Serves on a free port until the tasks are dropped.
async fn serve(app: Router, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tasks.spawn(async move { axum::serve(listener, service).await.unwrap() });
    address
}

/// What the page reports about these services.
async fn report(services: &[SocketAddr], tasks: &mut JoinSet<()>) -> Vec<String> {
    let (sender, mut reports) = mpsc::channel(1);
    let urls: Vec<String> = services
        .iter()
        .map(|address| format!("\"http://{address}/\""))
        .collect();
    let page = SCRIPT.replace("URLS", &format!("[{}]", urls.join(", ")));
    let keep = move |body: String| async move {
        sender.send(body).await.unwrap();
    };
    let app = Router::new()
        .route("/", get(move || async move { Html(page) }))
        .route("/report", post(keep));
    let address = serve(app, tasks).await;
    let browser = Chromium::open(&format!("http://{address}/"));
    let Ok(Some(text)) = timeout(DEADLINE, reports.recv()).await else {
        panic!("no report:\n{}", browser.log());
    };
    text.lines().map(str::to_owned).collect()
}

/// The documented order: CORS outside, the limit inside, so that refusals have CORS fields. In the other order scripts see a network
/// error without a status, and preflights are refused too; that is the control.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_reads_the_refusal_if_the_cors_layer_is_outside() {
    let mut tasks = JoinSet::new();
    let fresh = || -> TestLayer { layer(POLICY).0 };
    // axum calls the layer that was added last first.
    let documented = hello().layer(fresh()).layer(cors());
    let swapped = hello().layer(cors()).layer(fresh());
    let services = [
        serve(documented, &mut tasks).await,
        serve(swapped, &mut tasks).await,
    ];
    let lines = report(&services, &mut tasks).await;
    let policy = r#""all";q=2;w=3600"#;
    assert_eq!(
        lines[..3],
        [
            format!(r#"200 |  | "all";r=1;t=1800 | {policy}"#),
            format!(r#"200 |  | "all";r=0;t=1800 | {policy}"#),
            format!(r#"429 | 1800 | "all";r=0;t=1800 | {policy}"#),
        ]
    );
    let statuses: Vec<&str> = lines[3..]
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(statuses, ["200", "200", "TypeError"], "control");
}
