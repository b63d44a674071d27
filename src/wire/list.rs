//! Lists: which methods answer with one, and the entries of an answer as every reader of it sees them.
//!
//! An answer of an upstream passes raw, whatever its values are. Where entries are to be left out that is not
//! enough: what one reader takes for the list, or for the name of an entry, another must not take for something
//! else. So here the members on the way to a name stand once and are spelled exactly, and each entry passes the
//! strict scan.

use bytes::Bytes;

use super::frame::is_variant;
use super::object;
use super::scan::{ScanError, ScanLimits, scan};
use crate::decision::{Kind, Seam};

/// Names the stream to which a notification of revision 2026-07-28 belongs: the id of its `subscriptions/listen`
/// request.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The deepest nesting of one entry, as of a client's frame.
const ENTRY_DEPTH_MAX: usize = 64;

/// The members of a result that a list has beside its entries, as far as this host or the protocol reads them.
const BESIDE: &[&str] = &["nextCursor", "ttlMs", "cacheScope", "resultType", "_meta"];

/// What the answer to a method lists; none when it is no list of something that can be hidden.
#[must_use]
pub fn listed(method: &str) -> Option<Kind> {
    match method {
        "tools/list" => Some(Kind::Tool),
        // A directory's answer is a list of resources like any other.
        "resources/list" | "resources/directory/read" => Some(Kind::Resource),
        "resources/templates/list" => Some(Kind::Template),
        "prompts/list" => Some(Kind::Prompt),
        _ => None,
    }
}

/// The member of a result that holds the list, and the one of an entry that names it.
fn members_of(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Tool => ("tools", "name"),
        Kind::Resource => ("resources", "uri"),
        Kind::Template => ("resourceTemplates", "uriTemplate"),
        Kind::Prompt => ("prompts", "name"),
    }
}

/// A list that can be read in one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<'a> {
    result: &'a str,
    member: &'static str,
    array: &'a str,
    /// The entries, in order.
    pub entries: Vec<Entry<'a>>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is called, unescaped.
    pub name: String,
    /// The whole of it, raw.
    pub json: &'a str,
}

/// Why a result is no list that can be read in one way only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// A member of the result stands twice.
    #[error("`{0}` stands twice in it")]
    Twice(&'static str),
    /// A member of the result is spelled like one that is read, but for the case of its letters.
    #[error(
        "the member {} of it differs only in case from one that is read",
        object::quote(_0)
    )]
    Variant(String),
    /// The list is missing.
    #[error("it has no list `{0}`")]
    NoList(&'static str),
    /// An entry is none. Counted from 0.
    #[error("entry {at} of its list `{list}` {why}")]
    Entry {
        /// Which one.
        at: usize,
        /// The list.
        list: &'static str,
        /// What is wrong.
        why: EntryError,
    },
}

/// Why an entry is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// It is something else than an object.
    #[error("is no object")]
    NoObject,
    /// Readers could differ on what it says.
    #[error("cannot be read: {0}")]
    Scan(ScanError),
    /// A member of it is spelled like its name, but for the case of its letters.
    #[error(
        "has a member {} that differs only in case from `{name}`",
        object::quote(member)
    )]
    Variant {
        /// The member.
        member: String,
        /// What it resembles.
        name: &'static str,
    },
    /// It has no name.
    #[error("has no text `{0}`")]
    NoName(&'static str),
}

/// Reads the list that a result holds.
///
/// # Errors
///
/// [`ListError`] for what could be read in more than one way, or not at all.
pub fn read(kind: Kind, result: &str) -> Result<List<'_>, ListError> {
    let (list, name) = members_of(kind);
    let known = || BESIDE.iter().copied().chain([list]);
    let mut seen = Vec::new();
    let mut array = None;
    for member in object::members(result) {
        if let Some(known) = known().find(|known| *known == member.name) {
            if seen.contains(&known) {
                return Err(ListError::Twice(known));
            }
            seen.push(known);
            if known == list {
                array = Some(member.value);
            }
        } else if known().any(|known| is_variant(&member.name, &[known])) {
            return Err(ListError::Variant(member.name.into_owned()));
        }
    }
    let array = array.filter(|array| array.starts_with('['));
    let array = array.ok_or(ListError::NoList(list))?;
    let entries = object::elements(array).enumerate().map(|(at, json)| {
        let name = named(json, name).map_err(|why| ListError::Entry { at, list, why })?;
        Ok(Entry { name, json })
    });
    Ok(List {
        result,
        member: list,
        array,
        entries: entries.collect::<Result<_, _>>()?,
    })
}

/// The name of an entry.
fn named(json: &str, name: &'static str) -> Result<String, EntryError> {
    let limits = ScanLimits {
        frame_bytes_max: usize::MAX,
        depth_max: ENTRY_DEPTH_MAX,
    };
    if !object::is_object(json) {
        return Err(EntryError::NoObject);
    }
    let entry = scan(json.as_bytes(), &limits).map_err(EntryError::Scan)?;
    if let Some(member) = object::members(entry).find(|member| is_variant(&member.name, &[name])) {
        let member = member.name.into_owned();
        return Err(EntryError::Variant { member, name });
    }
    let text = object::member(entry, name).and_then(object::text);
    text.ok_or(EntryError::NoName(name))
}

impl List<'_> {
    /// The result with those entries only that are `shown`, by their places; none when that is every one. What is
    /// kept keeps its bytes and its order.
    #[must_use]
    pub fn with_only(&self, shown: &[bool]) -> Option<String> {
        let is_shown = |at: usize| shown.get(at).copied().unwrap_or(false);
        if (0..self.entries.len()).all(is_shown) {
            return None;
        }
        let mut places = 0..;
        let kept = object::retained(self.array, |_| places.next().is_some_and(is_shown));
        Some(object::with_member(
            self.result,
            self.member,
            Some(kept.as_deref().unwrap_or("[]")),
        ))
    }
}

/// A list of which clients can be told that it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The tools.
    Tools,
    /// The prompts.
    Prompts,
    /// The resources, and their templates.
    Resources,
}

impl Told {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// The seam whose chain says what it shows.
    #[must_use]
    pub fn seam(self) -> Seam {
        match self {
            Self::Tools => Kind::Tool.seam(),
            Self::Prompts => Kind::Prompt.seam(),
            Self::Resources => Kind::Resource.seam(),
        }
    }

    /// The capability that a server with this list declares.
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    /// The member of a subscription's filter that asks for word of its changes (2026-07-28).
    #[must_use]
    pub fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }

    /// The notification that it has changed, as a line. `subscription` is the raw id of the client's request for it,
    /// where there are such.
    #[must_use]
    pub fn changed(self, subscription: Option<&str>) -> Bytes {
        let list = self.capability();
        let params = subscription.map(|id| format!(r#","params":{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}"#));
        let params = params.unwrap_or_default();
        Bytes::from(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\"{params}}}\n"
        ))
    }
}

/// The lists that a server has, by its raw capabilities.
#[must_use]
pub fn served(capabilities: &str) -> Vec<Told> {
    let has = |told: &Told| object::member(capabilities, told.capability()).is_some_and(object::is_object);
    Told::ALL.into_iter().filter(has).collect()
}

/// The lists of which the raw filter of a subscription asks for changes, or of which its acknowledgement promises them.
#[must_use]
pub fn asked(filter: &str) -> Vec<Told> {
    let asks = |told: &Told| object::member(filter, told.filter()) == Some("true");
    Told::ALL.into_iter().filter(asks).collect()
}

/// Whether a server with these capabilities has subscriptions (2026-07-28): it declares something that comes on them.
#[must_use]
pub fn has_subscriptions(capabilities: &str) -> bool {
    Told::ALL.into_iter().any(|told| {
        let capability = object::member(capabilities, told.capability()).unwrap_or_default();
        ["listChanged", "subscribe"]
            .iter()
            .any(|name| object::member(capability, name) == Some("true"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kind: Kind, result: &str) -> Result<Vec<String>, ListError> {
        Ok(read(kind, result)?
            .entries
            .into_iter()
            .map(|entry| entry.name)
            .collect())
    }

    #[test]
    fn each_kind_has_its_members() {
        #[track_caller]
        fn check(method: &str, result: &str, expected: &str) {
            let kind = listed(method).expect("a list");
            assert_eq!(Ok(vec![expected.to_owned()]), names(kind, result), "{method}");
        }
        check("tools/list", r#"{"tools":[{"name":"a"}]}"#, "a");
        check("prompts/list", r#"{"prompts":[{"n\u0061me":"\u0061"}]}"#, "a");
        check(
            "resources/list",
            r#"{"resources":[{"uri":"x:\/\/y","name":"z"}]}"#,
            "x://y",
        );
        check("resources/directory/read", r#"{"resources":[{"uri":"x"}]}"#, "x");
        check(
            "resources/templates/list",
            r#"{"resourceTemplates":[{"uriTemplate":"x{y}"}]}"#,
            "x{y}",
        );
        for other in [
            "tools/call",
            "skills/list",
            "tasks/list",
            "tools/List",
            "resources/read",
        ] {
            assert_eq!(None, listed(other), "{other}");
        }
    }

    #[test]
    fn what_readers_could_differ_on_is_no_list() {
        #[track_caller]
        fn check(result: &str, expected: &str) {
            let error = names(Kind::Tool, result).unwrap_err().to_string();
            assert_eq!(expected, error, "{result}");
        }
        check("{}", "it has no list `tools`");
        for no_list in ["null", "1", r#""[]""#, "{}", r#"{"0":{"name":"a"}}"#] {
            check(&format!(r#"{{"tools":{no_list}}}"#), "it has no list `tools`");
        }
        check(r#"{"prompts":[]}"#, "it has no list `tools`");
        check(
            r#"{"tools":[],"t\u006fols":[{"name":"a"}]}"#,
            "`tools` stands twice in it",
        );
        check(
            r#"{"ttlMs":0,"tools":[],"ttlMs":1}"#,
            "`ttlMs` stands twice in it",
        );
        check(
            r#"{"tools":[],"Tools":[{"name":"a"}]}"#,
            r#"the member "Tools" of it differs only in case from one that is read"#,
        );
        check(
            r#"{"tools":[],"tool\u017f":[{"name":"a"}]}"#,
            "the member \"tool\u{17f}\" of it differs only in case from one that is read",
        );
        check(
            r#"{"cachescope":"public","tools":[]}"#,
            r#"the member "cachescope" of it differs only in case from one that is read"#,
        );
    }

    #[test]
    fn what_has_no_name_is_no_entry() {
        #[track_caller]
        fn check(entry: &str, expected: &str) {
            let result = format!(r#"{{"tools":[{{"name":"a"}},{entry}]}}"#);
            let error = names(Kind::Tool, &result).unwrap_err().to_string();
            assert_eq!(
                format!("entry 1 of its list `tools` {expected}"),
                error,
                "{entry}"
            );
        }
        for nameless in ["{}", r#"{"title":"b"}"#] {
            check(nameless, "has no text `name`");
        }
        for other in ["1", "null", "[]", r#"{"name":"b"}"#] {
            check(&format!(r#"{{"name":{other}}}"#), "has no text `name`");
        }
        for no_object in ["null", "1", r#""b""#, r#"[{"name":"b"}]"#] {
            check(no_object, "is no object");
        }
        check(
            r#"{"name":"b","n\u0061me":"c"}"#,
            "cannot be read: duplicate member name at byte 12",
        );
        check(
            r#"{"name":"b","x":[{"y":1,"y":2}]}"#,
            "cannot be read: duplicate member name at byte 24",
        );
        check(
            r#"{"name":"b\ud800"}"#,
            "cannot be read: lone surrogate at byte 10",
        );
        check(
            r#"{"name":"b","x":1e999}"#,
            "cannot be read: number outside the range of IEEE doubles at byte 16",
        );
        check(
            r#"{"name":"b","NAME":"c"}"#,
            r#"has a member "NAME" that differs only in case from `name`"#,
        );
        let deep = format!(r#"{{"name":"b","x":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        check(&deep, "cannot be read: nested deeper than 64 levels");
    }

    #[test]
    fn what_is_kept_keeps_its_bytes() {
        let result = r#"{ "nextCursor" : "n", "tools" : [ {"name":"a","n":1.10} , {"name":"b"},{ "name" : "c" } ] ,"x":{"x":1,"x":2}}"#;
        let list = read(Kind::Tool, result).unwrap();
        assert_eq!(None, list.with_only(&[true, true, true]));
        assert_eq!(
            Some(r#"{ "nextCursor" : "n", "tools" : [{"name":"a","n":1.10},{ "name" : "c" }] ,"x":{"x":1,"x":2}}"#.to_owned()),
            list.with_only(&[true, false, true])
        );
        assert_eq!(
            Some(r#"{ "nextCursor" : "n", "tools" : [] ,"x":{"x":1,"x":2}}"#.to_owned()),
            list.with_only(&[false, false]),
            "what nobody spoke of is not shown"
        );
        let empty = read(Kind::Tool, r#"{"tools":[ ]}"#).unwrap();
        assert_eq!(None, empty.with_only(&[]));
    }

    #[test]
    fn word_of_a_change() {
        let line = |told: Told, id| String::from_utf8(told.changed(id).to_vec()).unwrap();
        assert_eq!(
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n",
            line(Told::Tools, None)
        );
        assert_eq!(
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/list_changed\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":\"a\"}}}\n",
            line(Told::Resources, Some(r#""a""#))
        );
        assert_eq!(
            vec![Told::Tools, Told::Resources],
            asked(r#"{"resourcesListChanged":true,"promptsListChanged":"true","toolsListChanged":true}"#)
        );
        assert_eq!(vec![Told::Prompts], served(r#"{"tools":true,"prompts":{}}"#));
        assert!(has_subscriptions(
            r#"{"tools":{},"resources":{"subscribe":true}}"#
        ));
        assert!(!has_subscriptions(
            r#"{"tools":{"listChanged":false},"logging":{"listChanged":true}}"#
        ));
    }
}
