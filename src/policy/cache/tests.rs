use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::policy::engine::EngineSettings;

/// The smallest component that there is, compiled.
fn component(engine: &Engine) -> Component {
    Component::new(engine.wasm(), wat::parse_str("(component)").unwrap()).unwrap()
}

fn cache() -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&folder.path().join("cache")).unwrap();
    (folder, cache)
}

/// Puts `compiled` into the cache as only this host can.
fn plant(cache: &Cache, entry: Digest, compiled: &[u8]) {
    let file = artifact::file(&cache.key, [7; artifact::NONCE_BYTES], entry, b"note", compiled).unwrap();
    cache.directory.replace(&name(entry), "new", &file).unwrap();
}

#[test]
fn what_is_kept_is_found() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let (_folder, cache) = cache();
    let (here, elsewhere) = (Digest::of(b"here"), Digest::of(b"elsewhere"));
    assert!(cache.find(&engine, here).is_none());
    cache.keep(here, &component(&engine), b"a note");
    assert_eq!(b"a note".as_slice(), cache.find(&engine, here).unwrap().note);
    assert!(cache.find(&engine, elsewhere).is_none());
}

/// The engine refuses what another version of it made, even under the right name and tag.
#[test]
fn what_another_version_compiled_is_not_used() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let (_folder, cache) = cache();
    let entry = Digest::of(b"entry");
    let mut compiled = component(&engine).serialize().unwrap();
    plant(&cache, entry, &compiled);
    assert!(cache.find(&engine, entry).is_some());
    let version = Engine::version().as_bytes();
    let major = version.split(|byte| *byte == b'.').next().unwrap();
    let at: Vec<usize> = (0..compiled.len() - version.len())
        .filter(|at| {
            compiled[*at..].starts_with(version) || compiled[*at..].starts_with(&[&[2], major].concat())
        })
        .collect();
    assert!(!at.is_empty(), "the version stands in what is compiled");
    for at in at {
        let first = at + usize::from(compiled[at] == 2);
        compiled[first] = b'1';
    }
    plant(&cache, entry, &compiled);
    assert!(cache.find(&engine, entry).is_none());
    plant(&cache, entry, b"no machine code at all");
    assert!(cache.find(&engine, entry).is_none());
}

#[test]
fn names_cover_the_engine() {
    let parts = || [b"a".as_slice(), b"b"];
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let same = Engine::new(&EngineSettings::default()).unwrap();
    assert_eq!(entry(&engine, parts()), entry(&same, parts()));
    assert_ne!(entry(&engine, parts()), entry(&engine, [b"ab".as_slice()]));
    let compiler_of = |change: fn(&mut wasmtime::Config) -> &mut wasmtime::Config| {
        let mut config = wasmtime::Config::new();
        change(&mut config);
        compiler(&wasmtime::Engine::new(&config).unwrap())
    };
    let plain = compiler_of(|config| config);
    assert_eq!(plain, compiler_of(|config| config));
    assert_ne!(plain, compiler(engine.wasm()));
    assert_ne!(plain, compiler_of(|config| config.epoch_interruption(true)));
    assert_ne!(
        plain,
        compiler_of(|config| config.cranelift_nan_canonicalization(true))
    );
    assert_ne!(plain, compiler_of(|config| config.wasm_memory64(false)));
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let (_folder, mut cache) = cache();
    let component = component(&engine);
    let entries = [b"1", b"2", b"3"].map(|name| Digest::of(name));
    cache.keep(entries[0], &component, b"");
    let bytes = std::fs::metadata(cache.path.join(name(entries[0])))
        .unwrap()
        .len();
    // Room for two.
    cache.bytes_max = 2 * bytes + bytes / 2;
    let aged = |entry: Digest, seconds: u64| {
        let file = std::fs::File::options()
            .append(true)
            .open(cache.path.join(name(entry)))
            .unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
            .unwrap();
    };
    aged(entries[0], 2000);
    cache.keep(entries[1], &component, b"");
    aged(entries[1], 1000);
    cache.keep(entries[2], &component, b"");
    let found = entries.map(|entry| cache.find(&engine, entry).is_some());
    assert_eq!([true, false, true], found);
    assert!(Cache::open(&cache.path).is_ok(), "the key stays");
}

#[test]
fn files_that_others_can_reach_are_not_read() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let (_folder, cache) = cache();
    let entry = Digest::of(b"entry");
    cache.keep(entry, &component(&engine), b"");
    let path = cache.path.join(name(entry));
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o620);
    assert!(cache.find(&engine, entry).is_none());
    mode(0o600);
    assert!(cache.find(&engine, entry).is_some());
    let elsewhere = cache.path.join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(cache.find(&engine, entry).is_none());
}
