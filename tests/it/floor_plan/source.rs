//! Reads Rust as far as its paths go: words, braces, and where a path starts.

/// A path that starts with `crate` or `super`.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) line: usize,
    /// How many modules written in the file itself stand around it.
    pub(super) inside: usize,
    pub(super) path: Vec<String>,
}

/// Every path in the text that starts with `crate` or `super`; a `use` with a group is one for each
/// of its leaves.
pub(super) fn named_paths(text: &str) -> Vec<Named> {
    let tokens = tokens(text);
    let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut named = Vec::new();
    // For each open brace, whether it opens a module.
    let mut braces: Vec<bool> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "{" => braces.push(2 <= at && text_at(at - 2) == "mod"),
            "}" => drop(braces.pop()),
            "crate" | "super" if text_at(at + 1) == "::" && (at == 0 || text_at(at - 1) != "::") => {
                let mut paths = Vec::new();
                at = tree(&tokens, at, &[], &mut paths);
                let inside = braces.iter().filter(|module| **module).count();
                named.extend(paths.into_iter().map(|path| Named {
                    line: token.line,
                    inside,
                    path,
                }));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    named
}

/// Reads one path, or one tree of a `use`, from `at`; gives the place behind it.
fn tree(tokens: &[Token], mut at: usize, before: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut path = before.to_vec();
    loop {
        match text_at(at) {
            "{" => {
                at += 1;
                while !matches!(text_at(at), "}" | "") {
                    at = tree(tokens, at, &path, paths);
                    // What stands between a tree and the next: `,`, or `as NAME`.
                    while !matches!(text_at(at), "," | "}" | "") {
                        at += 1;
                    }
                    at += usize::from(text_at(at) == ",");
                }
                return at + 1;
            }
            word if word == "*" || word.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
                path.push(word.into());
                at += 1;
            }
            _ => break,
        }
        if text_at(at) != "::" {
            break;
        }
        at += 1;
    }
    paths.push(path);
    at
}

#[derive(Debug)]
pub(super) struct Token {
    line: usize,
    pub(super) text: String,
}

/// Words, `::`, and single signs; comments, texts and characters are left out.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| {
            let word = rest
                .find(|part: char| !part.is_alphanumeric() && part != '_')
                .unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            let line = 1 + text.split_at(text.len() - rest.len()).0.matches('\n').count();
            tokens.push(Token {
                line,
                text: rest.split_at(length).0.into(),
            });
            length
        });
        rest = rest.split_at(length).1;
    }
    tokens
}

/// The length of the white space, comment, text, character or lifetime that the text starts with.
fn skipped(rest: &str) -> Option<usize> {
    let first = rest.chars().next()?;
    if first.is_whitespace() {
        return Some(first.len_utf8());
    }
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    // A prefix counts only in front of a quote; otherwise it starts a word.
    let quoted = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - quoted.len();
    if let Some(raw) = quoted.strip_prefix('r').filter(|_| prefix <= 1) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw.split_at(hashes).1.starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = prefix + 1 + hashes + 1;
            let length = rest.split_at(body).1.find(&end).map(|at| body + at + end.len());
            return Some(length.unwrap_or(rest.len()));
        }
    }
    if prefix <= 1 && quoted.starts_with('"') {
        return Some(prefix + up_to_quote(quoted, '"'));
    }
    if prefix <= 1 && quoted.starts_with('\'') {
        let mut after = quoted.chars().skip(1);
        return Some(match (after.next(), after.next()) {
            (Some('\\'), _) | (_, Some('\'')) => prefix + up_to_quote(quoted, '\''),
            // A lifetime or a label: the quote alone, so that the word behind it is a word.
            _ => 1,
        });
    }
    None
}

/// The length of a text or a character, from one quote to the next that is not escaped.
fn up_to_quote(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            found if found == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_u32);
    while let Some((_, rest)) = text.split_at_checked(at).filter(|(_, rest)| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}
