//! `subscriptions/listen`: each resource asked for is judged as `resources/subscribe`, and a denied
//! one is left out of what is forwarded (semantics section 2), as is a task of somebody else.

use super::record::Case;
use super::tasks::Tasks;
use super::{Gate, Passed};
use crate::decision::{Code, Conclusion, Seam};
use crate::wire::frame::Request;
use crate::wire::{object, shape};

/// The method that is narrowed.
const LISTEN: &str = "subscriptions/listen";

/// The name under which each resource is judged, so that one policy serves both eras.
const SUBSCRIBE: &str = "resources/subscribe";

/// Resources judged for one subscription at most.
const LISTEN_URIS_MAX: usize = 1024;

impl Gate {
    /// The request as it may be forwarded.
    pub(super) async fn narrowed(&self, case: &Case<'_>, tasks: &Tasks) -> Result<Request, Passed> {
        let request = &case.attempt.request;
        let params = request.params().unwrap_or("{}");
        if request.method() != LISTEN {
            return Ok(request.clone());
        }
        let invalid = |code: i64, message: String| Passed::Invalid {
            code,
            message,
            data: None,
        };
        let uris = shape::listen_uris(params).map_err(|error| invalid(error.code, error.detail))?;
        if LISTEN_URIS_MAX < uris.len() {
            let message = format!("at most {LISTEN_URIS_MAX} resources can be asked for in one subscription");
            return Err(invalid(-32602, message));
        }
        let mut denied = Vec::new();
        for uri in uris {
            let args_json = format!(r#"{{"uri":{}}}"#, object::quote(&uri));
            let verdict = self
                .judge_as(Seam::Reads, SUBSCRIBE, &args_json, case.attempt, case.caller)
                .await;
            case.record_part(&verdict, SUBSCRIBE, &args_json)
                .map_err(Passed::Refused)?;
            match verdict.conclusion {
                Conclusion::Allow => {}
                Conclusion::Ask(_) | Conclusion::Deny { .. } => denied.push(uri),
            }
        }
        let mut filter = object::member(params, "notifications").map(str::to_owned);
        if !denied.is_empty() {
            tracing::info!(decision.id = %case.id, resources = denied.len(), code = Code::Denied.as_str(),
                detail = Code::Denied.fixed_detail(), "resources are left out of a subscription");
            let kept = shape::listen_without(params, &|uri| !denied.iter().any(|denied| denied == uri));
            filter = Some(kept);
        }
        let principal = case.caller.principal.as_ref();
        let filter = filter.map(|filter| tasks.subscribable(principal, &filter).unwrap_or(filter));
        Ok(match filter {
            Some(filter) => request.with_param("notifications", Some(&filter)),
            None => request.clone(),
        })
    }
}
