//! The compilation cache: what it saves, and what it does not let in.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatewright::decision::{Decision, Fault};
use gatewright::policy::cache::{Cache, CacheError};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::PolicySettings;
use gatewright::policy::load::{Configured, Policy};
use tempfile::TempDir;

use crate::policies::call;
use crate::support::log::Lines;
use crate::support::policies::{Does, Guest, settings, wat_policy};

/// An engine, and a cache that does not exist yet.
struct Place {
    engine: Arc<Engine>,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            engine: Engine::new(&EngineSettings::default()).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn cache(&self) -> Cache {
        Cache::open(&self.path()).unwrap()
    }

    /// The compiled components.
    fn entries(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path())
            .unwrap()
            .map(|file| file.unwrap().path());
        files
            .filter(|path| path.extension().is_some_and(|extension| extension == "compiled"))
            .collect()
    }

    fn entry(&self) -> PathBuf {
        let entries = self.entries();
        assert_eq!(1, entries.len(), "{entries:?}");
        entries[0].clone()
    }

    /// Loads the policy that keeps its configuration, and checks that it still does.
    async fn load(&self, cache: &Cache) -> bool {
        let policy = Policy::load_with(&self.engine, configured("{\"n\":1}"), Some(cache)).unwrap();
        assert_eq!(Ok(Decision::Deny("{\"n\":1}".to_owned())), decide(&policy).await);
        policy.facts().cached
    }
}

const KEEPS: Guest<'_> = Guest {
    version: "1.0.0",
    before: "",
    with: "",
    imports: "",
    memory: r#"(memory (export "memory") 2)"#,
    items: "(global $ptr (mut i32) (i32.const 0)) (global $len (mut i32) (i32.const 0))",
    authorize: "(call $deny (global.get $ptr) (global.get $len))",
    realloc: "",
    post_return: "",
    visible: "",
    configure: "(global.set $ptr (local.get $ptr)) (global.set $len (local.get $len)) (call $allow)",
    cases: r#"(case "allow") (case "ask" string) (case "deny" string)"#,
    options: "",
};

fn configured(config: &str) -> PolicySettings {
    PolicySettings {
        config_json: config.to_owned(),
        ..settings("cached", KEEPS.component())
    }
}

async fn decide(policy: &Policy) -> Result<Decision, Fault> {
    policy.decide(&call("x")).await.0.map_err(|(fault, _)| fault)
}

#[tokio::test]
async fn the_second_load_compiles_nothing() {
    let place = Place::new();
    let cache = place.cache();
    let each = Guest {
        items: "(table $never 1 funcref)
            (func (table.fill $never (i32.const 0) (ref.null func) (i32.const 1)))",
        configure: "(call $allow)",
        ..Guest::default()
    };
    for settings in [
        settings("plain", wat_policy(Does::Deny("no"))),
        configured("{\"n\":1}"),
        settings("each", each.component()),
    ] {
        let load = |cache| Policy::load_with(&place.engine, settings.clone(), cache).unwrap();
        let [uncached, first, second] = [load(None), load(Some(&cache)), load(Some(&cache))];
        let cached = [&uncached, &first, &second].map(|policy| policy.facts().cached);
        assert_eq!([false, false, true], cached, "{}", settings.name);
        assert_eq!(uncached.facts().configured, second.facts().configured);
        assert_eq!(uncached.facts().imports, second.facts().imports);
        assert_eq!(uncached.digest(), second.digest());
        assert_eq!(decide(&uncached).await, decide(&second).await);
        // Another process, too.
        let again = Policy::load_with(&place.engine, settings.clone(), Some(&place.cache())).unwrap();
        assert!(again.facts().cached);
    }
    let each = Policy::load_with(&place.engine, settings("each", each.component()), Some(&cache)).unwrap();
    assert!(
        matches!(&each.facts().configured, Configured::EachCall { reason } if reason.contains("table.fill"))
    );
}

#[tokio::test]
async fn another_policy_is_another_entry() {
    let place = Place::new();
    let cache = place.cache();
    let cached = |settings| {
        let policy = Policy::load_with(&place.engine, settings, Some(&cache)).unwrap();
        policy.facts().cached
    };
    assert!(!cached(configured("{\"n\":1}")));
    assert!(!cached(configured("{\"n\":2}")));
    let mut less = configured("{\"n\":1}");
    less.limits.memory_bytes_max -= 1;
    assert!(!cached(less));
    let other = Guest {
        post_return: "(nop)",
        ..KEEPS
    };
    let other = PolicySettings {
        config_json: "{\"n\":1}".to_owned(),
        ..settings("cached", other.component())
    };
    assert!(!cached(other));
    assert!(cached(configured("{\"n\":1}")));
    assert_eq!(4, place.entries().len());
}

/// A policy that does not get into force leaves nothing that could.
#[test]
fn a_refused_policy_is_not_kept() {
    let place = Place::new();
    let cache = place.cache();
    let refuses = Guest {
        configure: "(call $answer (i32.const 1) (i32.const 0) (i32.const 0))",
        ..Guest::default()
    };
    for _ in 0..2 {
        let refused = Policy::load_with(&place.engine, settings("no", refuses.component()), Some(&cache));
        assert!(refused.is_err());
    }
    assert!(place.entries().is_empty());
}

/// Each of these files is ignored, reported, and written anew.
#[tokio::test]
async fn a_file_that_was_touched_is_not_used() {
    let place = Place::new();
    let cache = place.cache();
    assert!(!place.load(&cache).await);
    let entry = place.entry();
    let whole = fs::read(&entry).unwrap();

    let other = Place::new();
    assert!(!other.load(&other.cache()).await);
    let foreign = fs::read(other.entry()).unwrap();
    assert!(
        !other
            .load(&{
                fs::remove_file(other.entry()).unwrap();
                other.cache()
            })
            .await
    );

    let mut touched = vec![Vec::new(), foreign, b"no such thing".to_vec()];
    for bytes in [1, 24, 40, 60, whole.len() / 2, whole.len() - 1] {
        touched.push(whole[..bytes].to_vec());
    }
    // A bit of the nonce, the tag, the layout, the digest, the note, and of the code.
    for at in [0, 25, 41, 75, 110, 300, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        touched.push(bytes);
    }
    touched.push([whole.as_slice(), b"more"].concat());
    for (at, bytes) in touched.iter().enumerate() {
        fs::write(&entry, bytes).unwrap();
        let lines = Lines::default();
        let logged = lines.watch();
        assert!(!place.load(&cache).await, "touched {at}");
        drop(logged);
        let line = lines.with("compiled anew");
        assert!(line.starts_with("WARN"), "{line}");
        assert_ne!(bytes, &fs::read(&entry).unwrap(), "touched {at}");
        assert!(place.load(&cache).await, "touched {at}");
    }
}

/// What was compiled from one policy does not stand in for another one.
#[tokio::test]
async fn a_file_under_another_name_is_not_used() {
    let place = Place::new();
    let cache = place.cache();
    let allows = settings("allows", wat_policy(Does::Allow));
    let policy = Policy::load_with(&place.engine, allows, Some(&cache)).unwrap();
    assert_eq!(Ok(Decision::Allow), decide(&policy).await);
    let allows = place.entry();
    let denies = || settings("denies", wat_policy(Does::Deny("no")));
    Policy::load_with(&place.engine, denies(), Some(&cache)).unwrap();
    let denies_entry = place.entries().into_iter().find(|path| *path != allows).unwrap();
    fs::copy(&allows, &denies_entry).unwrap();
    let policy = Policy::load_with(&place.engine, denies(), Some(&cache)).unwrap();
    assert!(!policy.facts().cached);
    assert_eq!(Ok(Decision::Deny("no".to_owned())), decide(&policy).await);
}

/// With the key of another directory nothing here is ours.
#[tokio::test]
async fn a_foreign_key_opens_nothing() {
    let place = Place::new();
    assert!(!place.load(&place.cache()).await);
    let other = Place::new();
    other.cache();
    fs::copy(other.path().join("key"), place.path().join("key")).unwrap();
    let cache = place.cache();
    assert!(!place.load(&cache).await);
    assert!(place.load(&cache).await);
    // And one that is no key is an error, not an empty key.
    for key in [b"short".as_slice(), b"", &[7; 33]] {
        fs::write(place.path().join("key"), key).unwrap();
        let error = Cache::open(&place.path()).unwrap_err();
        assert!(matches!(error, CacheError::Key { .. }), "{error}");
    }
}

#[test]
fn only_a_directory_of_this_user_alone_is_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |path: &Path| Cache::open(path).unwrap_err();

    for mode in [0o755, 0o770, 0o701, 0o1777, 0o720] {
        let open = path(&format!("{mode:o}"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
        let error = refused(&open);
        assert!(matches!(error, CacheError::NotPrivate { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        assert_eq!(0, fs::read_dir(&open).unwrap().count(), "nothing was written");
    }

    let real = path("real");
    Cache::open(&real).unwrap();
    assert_eq!(0o700, fs::metadata(&real).unwrap().permissions().mode() & 0o7777);
    symlink(&real, path("link")).unwrap();
    symlink(path("nowhere"), path("dangling")).unwrap();
    fs::write(path("file"), "").unwrap();
    for name in ["link", "link/", "link/.", "dangling", "file", "file/below"] {
        let error = refused(&path(name));
        assert!(matches!(error, CacheError::Open { .. }), "{name}: {error}");
    }
    assert!(!path("nowhere").exists());

    // A directory of somebody else: root's, or one that root gives away.
    let foreign = if rustix::process::geteuid().is_root() {
        let given = path("given");
        fs::create_dir(&given).unwrap();
        fs::set_permissions(&given, Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&given, Some(65534), None).unwrap();
        given
    } else {
        PathBuf::from("/")
    };
    let error = refused(&foreign);
    assert!(error.to_string().contains("belongs to user"), "{error}");
}

/// Eight start at once with no directory, no key and no entry.
#[test]
fn several_at_once() {
    let place = Place::new();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let cache = place.cache();
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for _ in 0..3 {
                        runtime.block_on(place.load(&cache));
                    }
                    // Whoever wrote last, it is whole.
                    runtime.block_on(place.load(&cache))
                })
            })
            .collect();
        for load in loads {
            assert!(load.join().unwrap());
        }
    });
    let mut names: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name != "key");
    assert_eq!(1, names.len(), "nothing but the entry and the key: {names:?}");
}

/// A cache that cannot be written costs time, and nothing else.
#[tokio::test]
async fn a_cache_that_cannot_be_written() {
    // The entry's name is taken by something that no file can replace.
    let place = Place::new();
    let cache = place.cache();
    assert!(!place.load(&cache).await);
    let entry = place.entry();
    fs::remove_file(&entry).unwrap();
    fs::create_dir_all(entry.join("full")).unwrap();
    for _ in 0..2 {
        assert!(!place.load(&cache).await);
    }
    assert_eq!(
        2,
        fs::read_dir(place.path()).unwrap().count(),
        "the key, and that"
    );

    // The directory is gone, but open.
    fs::remove_dir_all(place.path()).unwrap();
    let lines = Lines::default();
    let logged = lines.watch();
    assert!(!place.load(&cache).await);
    drop(logged);
    assert!(lines.with("is not kept").starts_with("WARN"));
    assert!(!place.path().exists());

    // One that may only be read serves what it has.
    let place = Place::new();
    assert!(!place.load(&place.cache()).await);
    fs::set_permissions(place.path(), Permissions::from_mode(0o500)).unwrap();
    let cache = place.cache();
    assert!(place.load(&cache).await);
    fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
}
