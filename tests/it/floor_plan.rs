//! The floor plan of ARCHITECTURE.md holds, and nothing lies about forgotten.
//!
//! Rust lets every module of a crate name every other. The table in ARCHITECTURE.md says which may,
//! and this file reads the sources the way the compiler would read their paths: comments and texts
//! aside, with nested `use` groups, and with `super` counted from where it stands.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

mod source;

use source::{Named, named_paths, tokens};

/// The most lines of a source file, unit tests not counted.
const FILE_LINES_MAX: usize = 500;

/// Files that may be longer, how long, and why.
const LONGER_FILES: &[(&str, usize, &str)] = &[(
    "src/gate.rs",
    620,
    "the life of a call, which is to be read without turning a page",
)];

/// What the table allows a module to name.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    floor: u32,
    may_name: MayName,
}

#[derive(Debug, PartialEq, Eq)]
enum MayName {
    /// Every module on a lower floor.
    AllBelow,
    Only(Vec<String>),
}

type Plan = BTreeMap<String, Row>;

#[test]
fn every_module_names_only_what_its_row_lists() {
    let plan = plan(&fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    let mut read = 0;
    for file in rust_files(&top().join("src")).unwrap() {
        let shown = file.strip_prefix(top()).unwrap().display().to_string();
        let module = module_path(&shown);
        wrong.extend(
            violations(&plan, &module, &fs::read_to_string(&file).unwrap())
                .iter()
                .map(|error| format!("{shown}: {error}")),
        );
        read += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(10 < read, "only {read} files were read");
}

#[test]
fn the_plan_has_no_stairs_up() {
    let plan = plan(&fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap()).unwrap();
    assert_eq!(
        Some(&MayName::Only(Vec::new())),
        plan.get("vocabulary").map(|row| &row.may_name)
    );
    for (module, row) in &plan {
        let MayName::Only(named) = &row.may_name else {
            continue;
        };
        for name in named {
            let below = plan
                .get(name)
                .unwrap_or_else(|| panic!("{module} may name `{name}`, which has no row"));
            assert!(
                below.floor <= row.floor,
                "{module} may name `{name}`, which is on a higher floor"
            );
            let back = matches!(&below.may_name, MayName::Only(back) if back.contains(module));
            assert!(!back, "{module} and {name} may name each other");
        }
    }
}

#[test]
fn every_test_file_is_declared() {
    let folder = top().join("tests/it");
    for file in rust_files(&folder).unwrap() {
        let (parent, name) = (
            file.parent().unwrap(),
            file.file_stem().unwrap().to_str().unwrap(),
        );
        if parent == folder && name == "main" {
            continue;
        }
        let declaring = if parent == folder {
            folder.join("main.rs")
        } else {
            parent.with_extension("rs")
        };
        let text = fs::read_to_string(&declaring)
            .unwrap_or_else(|error| panic!("{} should declare `{name}`: {error}", declaring.display()));
        assert!(
            declares(&text, name),
            "{} does not declare `mod {name};`: its tests never run",
            declaring.display()
        );
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for file in rust_files(&top().join("src")).unwrap() {
        let shown = file.strip_prefix(top()).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        let max = LONGER_FILES
            .iter()
            .find(|(longer, ..)| *longer == shown)
            .map_or(FILE_LINES_MAX, |(_, max, _)| *max);
        assert!(
            lines <= max,
            "{shown} has {lines} lines before its tests; {max} are allowed"
        );
    }
    for (file, ..) in LONGER_FILES {
        assert!(
            top().join(file).is_file(),
            "{file} is gone; strike it from the list"
        );
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// `src/gate/ask.rs` is the module `gate::ask`; `src/lib.rs` is the root, an empty path.
fn module_path(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    if path == "lib" {
        Vec::new()
    } else {
        path.split('/').map(Into::into).collect()
    }
}

fn declares(text: &str, module: &str) -> bool {
    let tokens = tokens(text);
    tokens
        .windows(3)
        .any(|window| matches!(window, [a, b, c] if a.text == "mod" && b.text == module && c.text == ";"))
}

/// Reads the table that starts with `| floor | module |`.
fn plan(architecture: &str) -> Result<Plan, String> {
    let mut plan = Plan::new();
    let rows = architecture
        .lines()
        .skip_while(|line| !line.starts_with("| floor | module |"))
        .skip(2);
    for line in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [floor, modules, _, may_name] = cells.as_slice() else {
            return Err(format!("a row needs four cells: {line}"));
        };
        let floor = floor
            .parse()
            .map_err(|_| format!("a floor is a number: {line}"))?;
        for module in modules.split(", ") {
            let may_name = match *may_name {
                "all below" => MayName::AllBelow,
                "-" => MayName::Only(Vec::new()),
                list => MayName::Only(list.split(", ").map(Into::into).collect()),
            };
            plan.insert(module.trim_matches('`').into(), Row { floor, may_name });
        }
    }
    if plan.is_empty() {
        Err("there is no floor plan".into())
    } else {
        Ok(plan)
    }
}

/// What the text of one module names without leave.
fn violations(plan: &Plan, module: &[String], text: &str) -> Vec<String> {
    // The façade re-exports and nothing more; it may name everything.
    let Some(own) = module.first() else {
        return Vec::new();
    };
    let Some(row) = plan.get(own) else {
        return vec![format!("the module `{own}` has no row in ARCHITECTURE.md")];
    };
    let mut violations = Vec::new();
    for Named { line, inside, path } in named_paths(text) {
        let mut path = path.iter().map(String::as_str);
        let supers = match path.next() {
            Some("crate") => None,
            Some("super") => Some(1 + path.clone().take_while(|segment| *segment == "super").count()),
            _ => continue,
        };
        if let Some(supers) = supers {
            if supers < module.len() + inside {
                continue;
            }
            violations.push(format!(
                "line {line}: `super` leads out of `{own}`; write `crate`"
            ));
            path.by_ref().take(supers - 1).for_each(drop);
        }
        let Some(name) = path.next() else { continue };
        let allowed = name == own
            || match &row.may_name {
                MayName::AllBelow => plan.get(name).is_some_and(|named| named.floor < row.floor),
                MayName::Only(list) => list.iter().any(|listed| listed == name),
            };
        if !allowed {
            violations.push(format!("line {line}: `{own}` may not name `{name}`"));
        }
    }
    violations
}

const PLANTED_PLAN: &str = "\
| floor | module | one line | may name |
|---|---|---|---|
| 0 | `low` | x | - |
| 1 | `mid` | x | low |
| 2 | `side` | x | low |
| 3 | `top`, `main` | x | all below |
";

const SIDE: &str = "line 1: `mid` may not name `side`";
const OUT: &str = "line 1: `super` leads out of `mid`; write `crate`";

/// A file, its text, and what is wrong with it.
const PLANTED: &[(&str, &str, &[&str])] = &[
    // What the row lists, and one's own.
    (
        "src/mid.rs",
        "use crate::low::A; use crate::mid::b::C; fn f(_: crate::low::A) {}",
        &[],
    ),
    (
        "src/top.rs",
        "use crate::{low, mid::{self, x}, side::{a::{b, c}, d}};",
        &[],
    ),
    ("src/lib.rs", "use crate::{low, side};", &[]),
    // What it does not.
    ("src/mid.rs", "use crate::side::A;", &[SIDE]),
    ("src/mid/deep/er.rs", "fn f() { crate::side::g::<u8>() }", &[SIDE]),
    ("src/mid.rs", "pub(in crate::side) fn f() {}", &[SIDE]),
    ("src/mid.rs", "use crate::{low::{A, B as C}, side};", &[SIDE]),
    (
        "src/mid.rs",
        "use crate::{low::{a::{b, c as d}, e}, mid::f, side::{g, h}};",
        &[SIDE, SIDE],
    ),
    ("src/mid.rs", "use crate::{{low::A, {side::B}}};", &[SIDE]),
    ("src/mid.rs", "use crate\n    ::\n    side;", &[SIDE]),
    ("src/mid.rs", "use crate::*;", &["line 1: `mid` may not name `*`"]),
    (
        "src/mid.rs",
        "\n\nuse crate::top::A;",
        &["line 3: `mid` may not name `top`"],
    ),
    (
        "src/low.rs",
        "#[cfg(test)] mod tests { use crate::mid::A; }",
        &["line 1: `low` may not name `mid`"],
    ),
    (
        "src/top.rs",
        "use crate::main::A;",
        &["line 1: `top` may not name `main`"],
    ),
    (
        "src/new.rs",
        "",
        &["the module `new` has no row in ARCHITECTURE.md"],
    ),
    // `super`, counted from where it stands.
    ("src/mid/deep.rs", "use super::A;", &[]),
    ("src/mid.rs", "mod tests { use super::*; }", &[]),
    ("src/mid.rs", "use super::low::A;", &[OUT]),
    ("src/mid/deep.rs", "use super::super::side::A;", &[OUT, SIDE]),
    (
        "src/mid.rs",
        "mod tests { use super::{A, super::side}; }",
        &[OUT, SIDE],
    ),
    (
        "src/mid.rs",
        "fn f() { if true { mod_it() } } use super::side;",
        &[OUT, SIDE],
    ),
    // Comments, texts and characters are no imports, and hide none.
    (
        "src/mid.rs",
        "// use crate::side::A;\n/// [`crate::side`]\n//! crate::side",
        &[],
    ),
    (
        "src/mid.rs",
        "/* crate::side /* crate::side */ crate::side */",
        &[],
    ),
    (
        "src/mid.rs",
        r##"const A: &str = "\"crate::side"; const B: &str = r#"crate::side""#;"##,
        &[],
    ),
    (
        "src/mid.rs",
        r"fn f<'a>(_: &'a str) { ['\'', '\\', 'x', '{'] } use crate::side;",
        &[SIDE],
    ),
    (
        "src/mid.rs",
        r##"const A: &[u8] = br#"""#; const B: u8 = b'"'; use crate::side;"##,
        &[SIDE],
    ),
];

#[test]
fn planted_imports_are_found() {
    let plan = plan(PLANTED_PLAN).unwrap();
    for (file, text, expected) in PLANTED {
        assert_eq!(*expected, violations(&plan, &module_path(file), text), "{text}");
    }
}

#[test]
fn declarations_are_found() {
    assert!(declares("mod a;\npub mod b;", "a"));
    assert!(declares("mod a;\npub mod b;", "b"));
    assert!(!declares("// mod a;\nmod ab;", "a"));
    assert!(!declares("mod a { }", "a"));
}
