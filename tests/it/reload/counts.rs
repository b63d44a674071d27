//! What was counted of the policies, and the call with which those of a listener are tried.

use std::path::Path;

use gatewright::decision::{Conclusion, Seam};
use gatewright::host::metrics::Metrics;
use gatewright::policy::reload::{Proof, ReplaceError};

use super::{Followed, file_settings, files, loader};

fn replace(followed: &mut Followed, proof: Proof, path: &Path) -> Result<(), ReplaceError> {
    let chains = vec![(Seam::Tools, vec![file_settings(path)])];
    followed.reloader.replace_all(loader(proof), chains)
}

/// A counter never falls while the gate runs, and nothing is told of a policy that is gone.
#[tokio::test(start_paused = true)]
async fn counts_outlive_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.wasm", "second.wasm"].map(|name| folder.path().join(name));
    files::write(&first, &files::content("allow-all"));
    files::write(&second, &files::content("allow-all"));
    let mut followed = Followed::start(&[&first]).unwrap();
    for content in ["deny-all", "truncated", "allow-all"] {
        files::write_and_rename(&first, &files::content(content));
        followed.settle().await;
    }
    assert_eq!((2, 1), followed.counted());
    replace(&mut followed, Proof::Loads, &first).unwrap();
    assert_eq!((2, 1), followed.counted());

    replace(&mut followed, Proof::Loads, &second).unwrap();
    let text = Metrics::new().text(&followed.reloader.board().read(), &[]);
    assert!(
        text.contains("second.wasm") && !text.contains("first.wasm"),
        "{text}"
    );
    assert!(
        text.contains("gatewright_reloads_total{result=\"ok\"} 2\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}

/// On a listener a policy that gives no answer does not replace one that does, by its file or by an order.
#[tokio::test(start_paused = true)]
async fn a_silent_policy_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.wasm", "second.wasm"].map(|name| folder.path().join(name));
    files::write(&first, &files::content("allow-all"));
    files::write(&second, &files::content("traps"));
    let mut followed = Followed::start_with(Proof::Decides, &[&first]).unwrap();

    files::write_and_rename(&first, &files::content("traps"));
    followed.settle().await;
    assert_eq!(Conclusion::Allow, followed.served().await);
    assert_eq!((0, 1), followed.counted());
    let reason = followed.status().failure.unwrap().reason;
    assert!(
        reason.contains("first.wasm") && reason.contains("gave no answer when it was tried (policy_trap"),
        "{reason}"
    );

    let refused = replace(&mut followed, Proof::Decides, &second)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("second.wasm") && refused.contains("policy_trap"),
        "{refused}"
    );
    assert_eq!(Conclusion::Allow, followed.served().await);

    assert!(
        Followed::start_with(Proof::Decides, &[&second]).is_err(),
        "nor at the start"
    );
    assert!(
        Followed::start(&[&second]).is_ok(),
        "on stdio it denies, and that is all"
    );
}
