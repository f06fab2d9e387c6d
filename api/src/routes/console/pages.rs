//! Pages of one subject each: a search, an order, a transfer, a webhook, a dead letter.

use super::*;
use crate::machine::story::Story;

/// `GET /console/search?q=`
pub(super) async fn search_for(console: Console, visit: Visit, query: Query) -> Answer {
    let wanted = Wanted::new(query.text("q")?.unwrap_or_default());
    let (since, sought) = (console.since(), wanted.clone());
    let found = console.inspect(&visit.operator, move |reader| {
        let hits = search::run(reader, &sought, since)?;
        Ok((hits, reader.remarks()))
    });
    let (hits, remarks) = found.await?;
    Ok(match hits.only() {
        Some(Subject::Order(id)) => lead(&format!("/console/orders/{id}")),
        Some(Subject::Transfer(id)) => lead(&format!("/console/transfers/{id}")),
        None => console.shown(&visit, list::hits(&wanted, &hits, &remarks)),
    })
}

/// `GET /console/orders/{order_id}`
pub(super) async fn order(
    console: Console,
    visit: Visit,
    Named(id): Named<OrderId>,
    query: Query,
) -> Answer {
    let row = console.reads.order_row(id).await?;
    let found = console.story(&visit, Subject::Order(id)).await?;
    let done = done(&query, |action| is_done(action, row.order.status))?;
    let checkout = console.links.checkout(&row.order);
    let of = console.context(&visit, &found, done);
    Ok(console.shown(&visit, order::render(&row, checkout.as_deref(), &of)))
}

/// `GET /console/transfers/{transfer_id}`
pub(super) async fn transfer(
    console: Console,
    visit: Visit,
    Named(id): Named<i64>,
    query: Query,
) -> Answer {
    let id = TransferId(id);
    let transfer = console.reads.transfer(id).await?;
    let candidates =
        console.in_turn(&visit, move |reads| async move { reads.candidates(id).await }).await?;
    let found = console.story(&visit, Subject::Transfer(id)).await?;
    let done = done(&query, |action| action == Action::ResendOrder)?;
    let of = console.context(&visit, &found, done);
    Ok(console.shown(&visit, transfer::render(&transfer, &candidates, &of)))
}

/// `GET /console/delivery?order=&event=`, or with `transfer`
pub(super) async fn delivery(console: Console, visit: Visit, query: Query) -> Answer {
    let order = query.text("order")?.and_then(|id| id.parse().ok()).map(Subject::Order);
    let transfer = query.text("transfer")?.and_then(|id| id.parse().ok());
    let subject = order.or(transfer.map(|id| Subject::Transfer(TransferId(id))));
    let event = query.text("event")?.unwrap_or_default().to_owned();
    let (subject, since) = (subject.ok_or(Refusal::ResourceNotFound)?, console.since());
    let found = console
        .inspect(&visit.operator, move |reader| delivery::read(reader, (subject, event), since));
    Ok(console.shown(&visit, found.await?.page(&visit)))
}

/// `GET /console/dead-letters/{number}`
pub(super) async fn letter(
    console: Console,
    visit: Visit,
    Named(number): Named<i64>,
    query: Query,
) -> Answer {
    let letter = console.letter(&visit, number).await?;
    let done = done(&query, |action| action == Action::Replay && letter.was_put_back())?;
    Ok(console.shown(&visit, letter.page(&visit, done)))
}

impl Console {
    /// A story, and its gaps in words.
    async fn story(&self, visit: &Visit, subject: Subject) -> Answer<(Story, Vec<String>)> {
        let since = self.since();
        let story = self.inspect(&visit.operator, move |reader| {
            let story = gather::story(reader, subject, since)?;
            Ok((story, reader.remarks()))
        });
        story.await
    }

    fn context<'a>(
        &'a self,
        visit: &'a Visit,
        (story, remarks): &'a (Story, Vec<String>),
        done: Option<&'static str>,
    ) -> order::Context<'a> {
        let (catalog, by, now) = (self.reads.catalog(), &visit.operator, self.clock.now());
        order::Context { story, remarks, catalog, by, now: now.seconds(), done }
    }

    pub(super) async fn letter(&self, visit: &Visit, number: i64) -> Answer<letters::Letter> {
        let (by, now) = (Asker::from(&visit.operator), self.clock.now());
        self.inspect(&visit.operator, move |reader| letters::read(reader, number, &by, now)).await
    }
}
