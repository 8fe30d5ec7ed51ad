//! Serves `PushService`.

use std::sync::Arc;

use audit::{Event, Kind};
use audit_service::AuditLog;
use notices::{Push, Subscription, Wanted};
use operations::Reason;
use refusal::Refusal;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::push_service_server::PushService;

use super::principal;

pub(crate) struct Service {
    /// `None` if the configuration has no `push`.
    pub(crate) push: Option<Arc<Push>>,
    pub(crate) audit: Arc<AuditLog>,
    /// Runs changes to their end even if the client leaves.
    pub(crate) tasks: TaskTracker,
}

impl Service {
    fn push(&self) -> Result<Arc<Push>, Refusal> {
        self.push.clone().ok_or_else(|| {
            Refusal::new(
                Reason::PreconditionFailed,
                "this daemon pushes no notices: the operator sets push in the configuration",
            )
            .with("setting", "push")
        })
    }
}

#[tonic::async_trait]
impl PushService for Service {
    async fn get_push_key(
        &self,
        _: Request<v1::GetPushKeyRequest>,
    ) -> Result<Response<v1::GetPushKeyResponse>, Status> {
        Ok(Response::new(v1::GetPushKeyResponse { public_key: self.push()?.key() }))
    }

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<v1::SubscribeResponse>, Status> {
        let (push, principal) = (self.push()?, principal(&request)?);
        let v1::SubscribeRequest { name, endpoint, p256dh, auth } = request.into_inner();
        let wanted = Wanted { name, endpoint, p256dh, auth };
        let audit = self.audit.clone();
        let made = self.tasks.spawn(async move {
            let subscribed = |made: Subscription| {
                let event = event(&made.principal, &made, "subscribed");
                async move { audit.record(event).await.map(drop).map_err(Refusal::from) }
            };
            push.subscribe(&principal.name, wanted, subscribed).await
        });
        let made = made.await;
        let made = made.map_err(|error| Refusal::internal("subscribing", &error))??;
        Ok(Response::new(v1::SubscribeResponse { subscription: Some(to_wire(made)) }))
    }

    async fn list_subscriptions(
        &self,
        request: Request<v1::ListSubscriptionsRequest>,
    ) -> Result<Response<v1::ListSubscriptionsResponse>, Status> {
        let found = self.push()?.list(&principal(&request)?.name);
        Ok(Response::new(v1::ListSubscriptionsResponse {
            subscriptions: found.into_iter().map(to_wire).collect(),
        }))
    }

    async fn unsubscribe(
        &self,
        request: Request<v1::UnsubscribeRequest>,
    ) -> Result<Response<v1::UnsubscribeResponse>, Status> {
        let (push, principal) = (self.push()?, principal(&request)?);
        let id = request.into_inner().subscription_id;
        let audit = self.audit.clone();
        let ended = self.tasks.spawn(async move {
            let before = push.list(&principal.name).into_iter().find(|it| it.id == id);
            push.unsubscribe(&principal.name, &id).await?;
            if let Some(before) = before {
                // It has ended, whatever the log is like.
                let _ = audit.record(event(&principal.name, &before, "ended")).await;
            }
            Ok::<_, Refusal>(())
        });
        let ended = ended.await;
        ended.map_err(|error| Refusal::internal("ending the subscription", &error))??;
        Ok(Response::new(v1::UnsubscribeResponse {}))
    }
}

/// Returns the record of a change of a subscription.
fn event(principal: &str, it: &Subscription, state: &str) -> Event {
    let details = json!({ "state": state, "subscription_id": it.id, "name": it.name, "host": it.host });
    Event::new(Kind::PushSubscription).principal(principal).details(details)
}

fn to_wire(it: Subscription) -> v1::Subscription {
    v1::Subscription {
        subscription_id: it.id,
        name: it.name,
        host: it.host,
        created_at: Some(it.created_at.to_wire()),
        expires_at: Some(it.expires_at.to_wire()),
    }
}
