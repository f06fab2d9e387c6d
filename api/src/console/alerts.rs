//! Page of alerts: the open ones, each with a link to resolve it, and pages of the topic's records.

use log::OpenAlerts;
use schemas::AlertKind;
use schemas::record::Alert;

use super::Page;
use super::action::{self, Action};
use super::markup::{
    address, badge, code, facts, foreign, head, hint, link, notice, plain, section, table, time,
};
use super::records::{Newest, subject};
use super::session::Visit;
use crate::page::Html;

/// Maximum open alerts that are listed: the newest ones.
const OPEN_MAX: usize = 100;

/// Open alerts of some kinds, with a link to resolve each if `may_operate`.
pub(super) fn open(
    alerts: &OpenAlerts,
    is_shown: impl Fn(AlertKind) -> bool,
    may_operate: bool,
) -> Html {
    let mut all: Vec<_> = alerts.iter().filter(|alert| is_shown(alert.kind)).collect();
    all.sort_by_key(|alert| std::cmp::Reverse(alert.raised_at));
    let left_out = all.len().saturating_sub(OPEN_MAX);
    let row = |alert: &&Alert| {
        let to = address("/console/alerts/resolve", &[("alert_id", &alert.alert_id)]);
        vec![
            time(alert.raised_at.seconds()),
            alert.kind.as_str().replace('_', " ").into(),
            foreign(alert.message.as_str()),
            subject((alert.order_id, alert.transfer_id)),
            if may_operate { link(to, "Resolve…") } else { Html::default() },
        ]
    };
    let names = ["Since", "Kind", "Message", "Subject", "Action"];
    let listed = table(&names, all.iter().take(OPEN_MAX).map(row), "None is open.");
    let more = plain(
        "<p class=\"hint\">{{count}} older ones are open: <code>tidemark alerts list</code></p>",
        &[("count", left_out.to_string().into())],
    );
    if left_out > 0 { listed.then(more) } else { listed }
}

/// Page of alerts. `done` is the message after an action.
pub(crate) fn page(
    alerts: &OpenAlerts,
    found: &Newest<Alert>,
    visit: &Visit,
    done: Option<&'static str>,
) -> Page {
    let row = |(_, alert): &(i64, Alert)| {
        vec![
            time(alert.raised_at.seconds()),
            badge(alert.state.as_str()),
            alert.kind.as_str().replace('_', " ").into(),
            foreign(alert.message.as_str()),
            subject((alert.order_id, alert.transfer_id)),
        ]
    };
    let names = ["Time", "State", "Kind", "Message", "Subject"];
    let all = table(&names, found.records.iter().map(row), "No alert.");
    let open = open(alerts, |_| true, visit.operator.may_operate());
    let main =
        head("Alerts", notice(done).then(hint("What is open, the newest first.")).then(open))
            .then(section("Every beginning and end", all.then(found.around("alerts"))));
    Page::new("Alerts", main).at("/console/alerts")
}

/// Confirmation page of a resolution.
pub(crate) fn resolve(alert: &Alert, visit: &Visit) -> Page {
    let what = facts([
        ("Alert", code(alert.alert_id.as_str())),
        ("Since", time(alert.raised_at.seconds())),
        ("Message", foreign(alert.message.as_str())),
    ]);
    let ends = hint("It ends by itself when its cause is over, and is raised again if that lasts.");
    let condition = if alert.kind.is_condition() { ends } else { Html::default() };
    let values = [("id", alert.alert_id.as_str().into())];
    let fields = plain(
        "<input type=\"hidden\" name=\"alert_id\" value=\"{{id}}\"><p><label>What was done about it, for the record <input \
         name=\"reason\" maxlength=\"500\" autocomplete=\"off\"></label></p>",
        &values,
    );
    action::confirm(Action::Resolve, what.then(condition), fields, visit)
}
