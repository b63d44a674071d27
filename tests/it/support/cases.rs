//! Tests from tables: one named test for each row of a file in `tests/cases`.

/// Makes a test for each name, and the list of the names.
macro_rules! named_cases {
    ($run:path => $($test:ident: $name:literal,)*) => {
        /// Every case that has a test.
        pub(super) const NAMES: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            $run($name);
        })*
    };
}
pub(crate) use named_cases;

/// Fails unless there is exactly one test for each of these cases, and a case for each test.
#[track_caller]
pub(crate) fn check_names<'a>(cases: impl Iterator<Item = &'a str>, tests: &[&'a str]) {
    let sorted = |mut names: Vec<&'a str>| {
        names.sort_unstable();
        names
    };
    let (cases, tests) = (sorted(cases.collect()), sorted(tests.to_vec()));
    let missing: Vec<_> = cases.iter().filter(|name| !tests.contains(name)).collect();
    let unknown: Vec<_> = tests.iter().filter(|name| !cases.contains(name)).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "cases without a test: {missing:#?}\ntests without a case: {unknown:#?}"
    );
    assert_eq!(cases, tests, "a name stands twice");
}

/// Runs a test under paused time, where nothing happens at the same moment as anything else.
pub(crate) fn paused(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test);
}
