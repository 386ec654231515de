//! Policy reload of `tollgate serve`: by a changed file and by SIGHUP.

use super::{PolicyFile, ServerProcess, get, policy};

#[test]
fn a_changed_policy_is_loaded_and_an_invalid_one_is_not() {
    let file = PolicyFile::new("reload", &policy("1/h"));
    let served = ServerProcess::with_policy(&file);
    let ask = |cost: u32, key: &str| {
        let target = format!("/v1/check?key={key}&cost={cost}");
        get(served.address, &target).unwrap()
    };
    assert!(ask(2, "a").contains("429"));
    file.write(&policy("2/h"));
    while !ask(2, "b").contains("200") {
        served.wait_for("policy loaded");
    }
    file.write("limits: [");
    served.wait_for("policy reload failed, keeping the current policy");
    // The second mistake, the deletion, and a reload by hand were not logged.
    let failed = || served.wait_for("policy reload failed, keeping the current policy");
    file.write("limits: 7\n");
    failed();
    std::fs::remove_file(&file.0).unwrap();
    failed();
    served.wait_for("the file cannot be read");
    served.signal("HUP");
    failed();
    served.wait_for("the file cannot be read");
    assert!(ask(2, "c").contains("200"));
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn sighup_reloads_the_policy_even_if_it_did_not_change() {
    let file = PolicyFile::new("signal", &policy("1/h"));
    let served = ServerProcess::with_policy(&file);
    served.signal("HUP");
    let line = served.wait_for("generation=2");
    assert!(line.contains("policy loaded"), "{line}");
    let (status, _) = served.stop("TERM");
    assert_eq!(status.code(), Some(0));
}
