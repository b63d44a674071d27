//! The tools as the upstream lists them: its own claim, which the guard for destructive tools and the
//! policies need (semantics sections 2 and 7).
//!
//! Listed by this host itself, on every page, when first needed; again after `list_changed`, and
//! when a tool is called that the list does not have, so that one which appeared silently is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Upstream, UpstreamFault};
use crate::gate::permit::Ungated;
use crate::wire::era::Era;
use crate::wire::object;

/// Pages read of one list at most.
const PAGES_MAX: usize = 1000;

/// How long listing may take, all pages together.
const LIST_DEADLINE: Duration = Duration::from_secs(10);

/// Every tool by its name, as raw JSON.
type List = Arc<HashMap<String, String>>;

/// The tools of one upstream, listed when needed.
#[derive(Debug, Default)]
pub struct Tools {
    list: Mutex<Option<List>>,
    stale: AtomicBool,
}

impl Tools {
    /// The upstream says that its list has changed.
    pub fn changed(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// The tool `name` as the upstream lists it now; none when it does not.
    ///
    /// # Errors
    ///
    /// [`UpstreamFault`] when the upstream does not answer or lists something unreadable.
    pub async fn find(
        &self,
        name: &str,
        upstream: &Upstream,
        era: Era,
    ) -> Result<Option<String>, UpstreamFault> {
        let mut held = self.list.lock().await;
        if let Some(list) = held.as_ref()
            && !self.stale.load(Ordering::Acquire)
            && let Some(tool) = list.get(name)
        {
            return Ok(Some(tool.clone()));
        }
        let list = self.read(upstream, era).await?;
        let tool = list.get(name).cloned();
        *held = Some(list);
        Ok(tool)
    }

    /// Every tool that the upstream lists now.
    ///
    /// # Errors
    ///
    /// As [`Tools::find`].
    pub async fn all(&self, upstream: &Upstream, era: Era) -> Result<List, UpstreamFault> {
        let mut held = self.list.lock().await;
        let list = self.read(upstream, era).await?;
        *held = Some(Arc::clone(&list));
        Ok(list)
    }

    async fn read(&self, upstream: &Upstream, era: Era) -> Result<List, UpstreamFault> {
        // Cleared first: a change that arrives while the list is read makes it stale again.
        self.stale.store(false, Ordering::Release);
        let deadline_ms = u64::try_from(LIST_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let listed = timeout(LIST_DEADLINE, read_pages(upstream, era)).await;
        let listed = listed.unwrap_or(Err(UpstreamFault::Timeout(deadline_ms)));
        if listed.is_err() {
            self.stale.store(true, Ordering::Release);
        }
        listed
    }
}

async fn read_pages(upstream: &Upstream, era: Era) -> Result<List, UpstreamFault> {
    let garbage = |what: &str| UpstreamFault::Garbage(format!("its list of tools {what}"));
    let mut tools = HashMap::new();
    let mut cursor: Option<String> = None;
    for _page in 0..PAGES_MAX {
        let request =
            Ungated::list_tools(cursor.as_deref(), era).ok_or_else(|| garbage("cannot be asked for"))?;
        let answer = upstream.ask(request).await?;
        let Some(result) = answer.result() else {
            // A server without tools answers with an error: it has none.
            return Ok(Arc::new(tools));
        };
        let page = object::member(result, "tools").ok_or_else(|| garbage("has no `tools`"))?;
        for tool in object::elements(page) {
            let name = object::member(tool, "name")
                .and_then(object::text)
                .ok_or_else(|| garbage("has a tool without a name"))?;
            tools.insert(name, tool.to_owned());
        }
        match object::member(result, "nextCursor").and_then(object::text) {
            Some(next) if cursor.as_deref() == Some(next.as_str()) => {
                return Err(garbage("repeats a cursor"));
            }
            Some(next) => cursor = Some(next),
            None => return Ok(Arc::new(tools)),
        }
    }
    Err(garbage("has too many pages"))
}
