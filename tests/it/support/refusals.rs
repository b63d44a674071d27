//! What a refusal looks like (semantics section 6), checked in full.

use gatewright::decision::Seam;
use gatewright::vocabulary::RandomId;
use serde_json::{Value, json};

const META: &str = "gatewright/refusal";

/// The object that a refusal carries, after a look at everything around it; none when the message is
/// no refusal. `stateless` is the era of 2026-07-28, `subject` the tool's name or the method.
pub(crate) fn refusal(message: &Value, stateless: bool, seam: Seam, subject: &str) -> Result<Value, String> {
    let (member, carried) = match seam {
        Seam::Tools => ("tool", in_result(message, stateless)?),
        Seam::Reads => ("method", in_error(message, subject)?),
    };
    let mut expected: Vec<&str> = vec![member, "error", "decision", "code", "detail", "decision_id"];
    expected.sort_unstable();
    let mut members: Vec<&str> = carried
        .as_object()
        .ok_or("a refusal is an object")?
        .keys()
        .map(String::as_str)
        .collect();
    members.sort_unstable();
    same(&expected, &members, "the members of a refusal")?;
    same(&json!("authorization_required"), &carried["error"], "error")?;
    same(&json!(subject), &carried[member], member)?;
    let asked = matches!(
        carried["code"].as_str(),
        Some("cannot_ask" | "declined" | "cancelled" | "not_approved" | "timeout" | "policy_changed")
    );
    same(
        &json!(if asked { "ask" } else { "deny" }),
        &carried["decision"],
        "decision",
    )?;
    let id = carried["decision_id"].as_str().and_then(RandomId::parse);
    id.ok_or("a decision id is 32 hexadecimal digits")?;
    Ok(carried)
}

fn in_result(message: &Value, stateless: bool) -> Result<Value, String> {
    let result = message.get("result").ok_or("a refused call has a result")?;
    same(&json!(true), &result["isError"], "isError")?;
    let kind = stateless.then(|| json!("complete"));
    same(&kind.as_ref(), &result.get("resultType"), "type of the result")?;
    same(
        &None,
        &result.get("structuredContent"),
        "no structured content in a refusal",
    )?;
    let [content] = result["content"].as_array().map_or(&[][..], Vec::as_slice) else {
        return Err("a refusal has one content".to_owned());
    };
    same(&json!("text"), &content["type"], "type of the content")?;
    let text: Value = serde_json::from_str(content["text"].as_str().unwrap_or_default())
        .map_err(|error| format!("the text of a refusal is JSON: {error}"))?;
    same(&text, &result["_meta"][META], "text and `_meta` of a refusal")?;
    Ok(text)
}

fn in_error(message: &Value, method: &str) -> Result<Value, String> {
    let error = message.get("error").ok_or("a refused read has an error")?;
    same(&json!(-31403), &error["code"], "code of a refused read")?;
    let text = format!("authorization_required: {method}");
    same(&json!(text), &error["message"], "message of a refused read")?;
    Ok(error["data"].clone())
}

/// As `assert_eq!`, for a check that may go on to the next message.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    expected: &T,
    actual: &T,
    what: &str,
) -> Result<(), String> {
    if expected == actual {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {actual:?}"))
    }
}
