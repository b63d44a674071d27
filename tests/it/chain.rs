//! How decisions combine (semantics section 3), with fakes in place of policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gatewright::decision::{Code, Conclusion, Decision, Fault, Kind, Mode};
use gatewright::policy::chain::{Answer, Chain, Member, Shows};
use gatewright::policy::lists::{LIST_DEADLINE, Viewing};
use gatewright::policy::live::LiveChain;
use gatewright::seam::{Authorizer as _, Call, Entry, Listing};
use gatewright::vocabulary::Digest;

use crate::policies::call;

/// Answers what it is told to.
#[derive(Debug)]
struct Fake {
    word: String,
    mode: Mode,
    asked: AtomicUsize,
}

impl Member for Fake {
    fn name(&self) -> &str {
        &self.word
    }

    fn digest(&self) -> Digest {
        Digest::of(self.word.as_bytes())
    }

    fn identity(&self) -> Digest {
        Digest::of_parts([self.word.as_bytes(), b"identity"])
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn answer<'a>(&'a self, _call: &'a Call<'a>) -> Answer<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fault = |fault| Err((fault, "the inside".to_owned()));
        let decision = match self.word.split_at(1) {
            ("a", _) => Ok(Decision::Allow),
            ("?", prompt) => Ok(Decision::Ask(prompt.to_owned())),
            ("d", reason) => Ok(Decision::Deny(reason.to_owned())),
            ("T", _) => fault(Fault::Timeout),
            ("M", _) => fault(Fault::Memory),
            ("O", _) => fault(Fault::Output),
            ("L", _) => fault(Fault::Load),
            ("X", _) => fault(Fault::Trap),
            ("!", _) => panic!("a fake panics"),
            (word, _) => unreachable!("{word}"),
        };
        Box::pin(async { (decision, 7) })
    }

    /// An `h` hides the names of which it has a letter, `^` fails in this way, and `~` never ends.
    fn hides(&self) -> bool {
        self.word.starts_with(['h', '^', '~'])
    }

    fn shows<'a>(&'a self, viewing: Viewing<'a>) -> Shows<'a> {
        assert!(self.hides(), "only those that hide are asked");
        self.asked.fetch_add(1, Ordering::Relaxed);
        let hidden = self.word.get(1..).unwrap_or_default().contains(viewing.name);
        match self.word.chars().next() {
            Some('^') => Box::pin(std::future::ready(Err((Fault::Trap, "the inside".to_owned())))),
            Some('~') => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(Ok(!hidden))),
        }
    }
}

/// Members in order, separated by spaces; `(…)` around one makes it an observer.
fn members(words: &str) -> Vec<Arc<Fake>> {
    let member = |word: &str| {
        let observed = word.strip_prefix('(').and_then(|word| word.strip_suffix(')'));
        let mode = if observed.is_some() {
            Mode::Observe
        } else {
            Mode::Enforce
        };
        let word = observed.unwrap_or(word).to_owned();
        Arc::new(Fake {
            word,
            mode,
            asked: AtomicUsize::new(0),
        })
    };
    words.split_whitespace().map(member).collect()
}

fn chain(members: &[Arc<Fake>]) -> Chain {
    Chain::of(
        members
            .iter()
            .map(|member| Arc::clone(member) as Arc<dyn Member>)
            .collect(),
    )
}

#[tokio::test]
async fn decisions_combine() {
    // The members, how many of them run, and the conclusion: `code detail` for a denial.
    let check = async |words: &str, run: usize, expected: &str| {
        let members = members(words);
        let verdict = chain(&members).judge(&call("x")).await;
        let conclusion = match verdict.conclusion {
            Conclusion::Allow => "allow".to_owned(),
            Conclusion::Ask(prompts) => format!("ask {}", prompts.join("+")),
            Conclusion::Deny { code, detail } => format!("{} {detail}", code.as_str()),
        };
        assert_eq!(expected, conclusion, "{words}");
        let names: Vec<_> = verdict
            .policies
            .iter()
            .map(|record| record.policy.as_str())
            .collect();
        let ran: Vec<_> = members
            .iter()
            .take(run)
            .map(|member| member.word.as_str())
            .collect();
        assert_eq!(ran, names, "{words}");
        for (at, member) in members.iter().enumerate() {
            let asked = member.asked.load(Ordering::Relaxed);
            assert_eq!(usize::from(at < run), asked, "{words}: member {at}");
        }
        for (record, member) in verdict.policies.iter().zip(&members) {
            assert_eq!(call("x").context.now_unix_ms, record.now_unix_ms, "{words}");
            assert_eq!(
                (member.mode, member.digest()),
                (record.mode, record.digest),
                "{words}"
            );
        }
    };
    check("a", 1, "allow").await;
    check("a a a", 3, "allow").await;
    check("?p", 1, "ask p").await;
    check("a ?p a ?q", 4, "ask p+q").await;
    check("?p ?p", 2, "ask p+p").await;
    check("dno", 1, "denied no").await;
    check("a dno a", 2, "denied no").await;
    check("?p dno ?q", 2, "denied no").await;
    check("dno dyes", 1, "denied no").await;

    let fixed = |code: Code| format!("{} {}", code.as_str(), code.fixed_detail());
    check("X a", 1, &fixed(Code::PolicyTrap)).await;
    check("T", 1, &fixed(Code::PolicyTimeout)).await;
    check("M", 1, &fixed(Code::PolicyMemory)).await;
    check("O", 1, &fixed(Code::PolicyOutput)).await;
    check("L", 1, &fixed(Code::PolicyLoad)).await;
    check("!", 1, &fixed(Code::PolicyInternal)).await;
    check("?p ! ?q", 2, &fixed(Code::PolicyInternal)).await;
    check("X dno", 1, &fixed(Code::PolicyTrap)).await;

    check("", 0, "denied the policy chain is empty").await;
    check("(a)", 1, "denied every policy of the chain only observes").await;
    check("(a) (dno)", 2, "denied every policy of the chain only observes").await;
    check("(?p)", 1, "denied every policy of the chain only observes").await;
    check("a (dno)", 2, "allow").await;
    check("(dno) a", 2, "allow").await;
    check("(?p) a (X) (T) (!)", 5, "allow").await;
    check("(a) dno", 2, "denied no").await;
    check("(?p) ?q", 2, "ask q").await;
    check("dno (a)", 1, "denied no").await;
}

#[tokio::test]
async fn a_panic_is_recorded_as_one() {
    let verdict = chain(&members("!")).judge(&call("x")).await;
    let recorded = verdict.policies[0].decision.clone();
    assert_eq!(
        Err((Fault::Internal, "the host panicked: a fake panics".to_owned())),
        recorded
    );
    let Conclusion::Deny { code, detail } = verdict.conclusion else {
        panic!("not denied")
    };
    assert_eq!(Code::PolicyInternal, code);
    assert!(
        !detail.contains("fake"),
        "the client learns nothing about the inside"
    );
}

#[tokio::test]
async fn the_revision_covers_what_counts() {
    let revision = |words: &str| chain(&members(words)).revision();
    assert_eq!(revision("a ?p"), revision("a ?p"));
    assert_eq!(revision("a ?p"), revision("(dno) a (a) ?p"));
    for other in ["a", "?p a", "a ?p a", "a ?q", "", "a (?p)"] {
        assert_ne!(revision("a ?p"), revision(other), "{other}");
    }
    let chain = chain(&members("a dno"));
    assert_eq!(chain.revision(), chain.judge(&call("x")).await.revision);
}

/// What a chain shows of the list a, b, c.
async fn shown(words: &str) -> Result<String, Fault> {
    let names = ["a", "b", "c"];
    let entries = names.map(|name| Entry { name, json: "{}" });
    let listing = Listing {
        kind: Kind::Tool,
        entries: &entries,
        context: call("").context,
    };
    let shown = chain(&members(words)).show(&listing).await?;
    assert_eq!(names.len(), shown.len());
    Ok(names
        .into_iter()
        .zip(shown)
        .filter_map(|(name, shown)| shown.then_some(name))
        .collect())
}

#[tokio::test(start_paused = true)]
async fn what_any_policy_hides_is_hidden() {
    let check = async |words: &str, expected: &str| {
        assert_eq!(Ok(expected.to_owned()), shown(words).await, "{words}");
    };
    check("", "abc").await;
    check("a dno X", "abc").await;
    check("h", "abc").await;
    check("hb", "ac").await;
    check("hb a hc", "a").await;
    check("habc", "").await;
    check("(hb) hc", "ab").await;
    check("(hb)", "abc").await;
    check("(^) (~)", "abc").await;
    for words in ["^", "hb ^", "^ hb"] {
        assert_eq!(Err(Fault::Trap), shown(words).await, "{words}");
    }
    assert_eq!(
        Ok(String::new()),
        shown("habc ^").await,
        "nobody needs to say more of what is hidden"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_has_a_deadline() {
    let begun = tokio::time::Instant::now();
    assert_eq!(Err(Fault::Timeout), shown("hb ~").await);
    assert_eq!(LIST_DEADLINE, begun.elapsed());
}

#[tokio::test]
async fn the_revision_of_lists_covers_what_hides() {
    let revision = |words: &str| *chain(&members(words)).hiding().borrow();
    for nothing_is_hidden in ["", "a dno", "(hb)"] {
        assert_eq!(None, revision(nothing_is_hidden), "{nothing_is_hidden}");
    }
    assert_eq!(revision("hb"), revision("dno hb (hc) ?q"));
    for other in ["hc", "hb hc", "h"] {
        assert_ne!(revision("hb"), revision(other), "{other}");
    }

    let live = LiveChain::new(chain(&members("a")));
    let mut hiding = live.hiding();
    let mut replaced_by = |words: &str| {
        live.replace(chain(&members(words)));
        hiding.has_changed().unwrap() && {
            hiding.mark_unchanged();
            true
        }
    };
    let told = ["dno", "hb", "a hb", "hc", "(hc)"].map(&mut replaced_by);
    assert_eq!([false, true, false, true, true], told);
}
