//! Pages of one subject each: a search, an order, a transfer, a webhook, a dead letter.

use super::*;
use crate::machine::story::Story;

/// `GET /console/search?q=`
pub(super) async fn search_for(desk: Desk, query: Query) -> Answer {
    let wanted = Wanted::new(query.text("q")?.unwrap_or_default());
    let (since, sought) = (desk.console.since(), wanted.clone());
    let found = desk.inspect(move |reader| {
        let hits = search::run(reader, &sought, since)?;
        Ok((hits, reader.remarks()))
    });
    let (hits, remarks) = found.await?;
    Ok(match hits.only() {
        Some(Subject::Order(id)) => lead(&format!("/console/orders/{id}")),
        Some(Subject::Transfer(id)) => lead(&format!("/console/transfers/{id}")),
        None => desk.shown(list::hits(&wanted, &hits, &remarks)),
    })
}

/// `GET /console/orders/{order_id}`
pub(super) async fn order(desk: Desk, Named(id): Named<OrderId>, query: Query) -> Answer {
    let row = desk.console.reads.order_row(id).await?;
    let found = desk.story(Subject::Order(id)).await?;
    let done = done(&query, |action| is_done(action, row.order.status))?;
    let checkout = desk.console.links.checkout(&row.order);
    let of = desk.context(&found, done);
    Ok(desk.shown(order::render(&row, checkout.as_deref(), &of)))
}

/// `GET /console/transfers/{transfer_id}`
pub(super) async fn transfer(desk: Desk, Named(id): Named<i64>, query: Query) -> Answer {
    let id = TransferId(id);
    let transfer = desk.console.reads.transfer(id).await?;
    let candidates = desk.in_turn(move |reads| async move { reads.candidates(id).await }).await?;
    let found = desk.story(Subject::Transfer(id)).await?;
    let done = done(&query, |action| action == Action::ResendOrder)?;
    let of = desk.context(&found, done);
    Ok(desk.shown(transfer::render(&transfer, &candidates, &of)))
}

/// `GET /console/delivery?order=&event=`, or with `transfer`
pub(super) async fn delivery(desk: Desk, query: Query) -> Answer {
    let order = query.text("order")?.and_then(|id| id.parse().ok()).map(Subject::Order);
    let transfer = query.text("transfer")?.and_then(|id| id.parse().ok());
    let subject = order.or(transfer.map(|id| Subject::Transfer(TransferId(id))));
    let event = query.text("event")?.unwrap_or_default().to_owned();
    let (subject, since) = (subject.ok_or(Refusal::ResourceNotFound)?, desk.console.since());
    let found = desk.inspect(move |reader| delivery::read(reader, (subject, event), since));
    Ok(desk.shown(found.await?.page(&desk.visit)))
}

/// `GET /console/dead-letters/{number}`
pub(super) async fn letter(desk: Desk, Named(number): Named<i64>, query: Query) -> Answer {
    let letter = desk.letter(number).await?;
    let done = done(&query, |action| action == Action::Replay && letter.was_put_back())?;
    Ok(desk.shown(letter.page(&desk.visit, done)))
}

impl Desk {
    /// A story, and its gaps in words.
    async fn story(&self, subject: Subject) -> Answer<(Story, Vec<String>)> {
        let since = self.console.since();
        let story = self.inspect(move |reader| {
            let story = gather::story(reader, subject, since)?;
            Ok((story, reader.remarks()))
        });
        story.await
    }

    fn context<'a>(
        &'a self,
        (story, remarks): &'a (Story, Vec<String>),
        done: Option<&'static str>,
    ) -> order::Context<'a> {
        let Console { reads, clock, .. } = &self.console;
        let (catalog, by, now) = (reads.catalog(), &self.visit.operator, clock.now().seconds());
        order::Context { story, remarks, catalog, by, now, done }
    }

    pub(super) async fn letter(&self, number: i64) -> Answer<letters::Letter> {
        let (by, now) = (Asker::from(&self.visit.operator), self.console.clock.now());
        self.inspect(move |reader| letters::read(reader, number, &by, now)).await
    }
}
