//! Sessions of signed-in operators, kept in memory alone: a restart or a reload of the configuration ends them. A
//! cookie has only a random number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use schemas::{Secret, UnixSeconds};
use uuid::Uuid;

use super::markup::hidden;
use crate::auth::Operator;
use crate::error::Refusal;
use crate::page::Html;

/// Maximum age of a session, in seconds.
pub(crate) const SESSION_SECONDS: i64 = 8 * 3600;
/// Maximum time since the last page of a session, in seconds.
const IDLE_SECONDS: i64 = 1800;
/// Maximum number of sessions. A further one evicts the one that expires first.
const SESSIONS_MAX: usize = 1_000;

/// Unguessable random number of 244 bits.
fn drawn() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

struct Session {
    operator: Operator,
    /// Token in every form of the session's pages.
    form: String,
    begun_at: UnixSeconds,
    used_at: UnixSeconds,
}

impl Session {
    fn ends_at(&self) -> UnixSeconds {
        self.begun_at.plus(SESSION_SECONDS).min(self.used_at.plus(IDLE_SECONDS))
    }
}

/// Operator of a request, and the token for the forms of the answer.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) operator: Operator,
    form: String,
}

impl Visit {
    /// Hidden field with the session's CSRF token.
    pub(crate) fn field(&self) -> Html {
        hidden("form", self.form.as_str())
    }

    /// `true` if a form has the session's CSRF token.
    pub(crate) fn is_own(&self, form: Option<&str>) -> bool {
        form.is_some_and(|form| Secret::new(self.form.as_str()).matches(form.as_bytes()))
    }
}

/// Extracts the visit that the console's guard stored in the request.
impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or(Refusal::AdminMissing)
    }
}

/// All sessions, by the number in their cookie.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Session>>);

impl Sessions {
    /// Begins a session and returns the value of its cookie.
    pub(crate) fn begin(&self, operator: Operator, now: UnixSeconds) -> String {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| session.ends_at() > now);
        if all.len() >= SESSIONS_MAX {
            let first = all.iter().min_by_key(|(_, session)| session.ends_at());
            let first = first.map(|(number, _)| number.clone());
            first.and_then(|number| all.remove(&number));
        }
        let number = drawn();
        let session = Session { operator, form: drawn(), begun_at: now, used_at: now };
        all.insert(number.clone(), session);
        number
    }

    /// Session of a number. Pages opened by a person extend it; fetches of a script do not.
    pub(crate) fn visit(&self, number: &str, now: UnixSeconds, by_person: bool) -> Option<Visit> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.get_mut(number).filter(|session| session.ends_at() > now)?;
        if by_person {
            session.used_at = now;
        }
        Some(Visit { operator: session.operator.clone(), form: session.form.clone() })
    }

    pub(crate) fn end(&self, number: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_790_000_000);

    #[test]
    fn a_session_ends_when_nobody_opens_a_page() {
        let sessions = Sessions::default();
        let number = sessions.begin(Operator::first(), NOW);
        let is_there =
            |seconds, by_person| sessions.visit(&number, NOW.plus(seconds), by_person).is_some();
        assert!(is_there(IDLE_SECONDS - 1, false));
        assert!(!is_there(IDLE_SECONDS, false), "a script keeps nothing open");
        assert!(is_there(IDLE_SECONDS - 1, true));
        assert!(is_there(IDLE_SECONDS, false));
        for seconds in (0..SESSION_SECONDS).step_by(1000) {
            assert!(is_there(seconds, true), "{seconds}");
        }
        assert!(!is_there(SESSION_SECONDS, true), "and after eight hours at the latest");
    }

    #[test]
    fn a_session_that_was_ended_is_gone() {
        let sessions = Sessions::default();
        let (one, other) =
            (sessions.begin(Operator::first(), NOW), sessions.begin(Operator::first(), NOW));
        let form = |number: &str| sessions.visit(number, NOW, true).map(|visit| visit.form);
        let (own, others) = (form(&one).unwrap(), form(&other).unwrap());
        let visit = sessions.visit(&one, NOW, true).unwrap();
        assert!(visit.is_own(Some(&own)) && !visit.is_own(Some(&others)) && !visit.is_own(None));
        assert!([&one, &own].iter().all(|number| number.len() == 64));
        sessions.end(&one);
        assert!(form(&one).is_none() && form(&other).is_some() && form("").is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let sessions = Sessions::default();
        let first = sessions.begin(Operator::first(), NOW);
        for _ in 0..SESSIONS_MAX {
            sessions.begin(Operator::first(), NOW.plus(1));
        }
        assert_eq!(sessions.0.lock().unwrap().len(), SESSIONS_MAX);
        assert!(sessions.visit(&first, NOW.plus(1), true).is_none(), "the oldest is gone");
        sessions.begin(Operator::first(), NOW.plus(SESSION_SECONDS));
        assert_eq!(sessions.0.lock().unwrap().len(), 1, "those that ended are not kept");
    }
}
