//! Approvals against a clock that is set forward and back while calls wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit_service::AuditLog;
use gateway::{
    Admission, Approval, ApprovalFilter, ApprovalState, Ballot, Choice, DecideError, Gateway, Review,
    Reviewer, Ticket,
};
use identity::{CallId, Role, Roles, RunId};
use operations::{Operation, Write};
use policy::{Caller, Level, Policy, RunScope};
use runs::record::Record;
use store::{Store, StoredApproval};
use timestamp::{Clock, UnixMillis};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::reattach::WaitingApprovals;
use super::{ApprovalSettings, Approvals, Asker, events, level};

/// When each test begins, milliseconds since 1970; its calls have 300 seconds.
const BEGIN: u64 = 60_000_000;

const SETTINGS: ApprovalSettings = ApprovalSettings { longest: None, allow_self_approval: false };

#[derive(Debug)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }
}

struct Scene {
    wall: Arc<Wall>,
    log: Arc<AuditLog>,
    approvals: Arc<Approvals>,
    gateway: Arc<Gateway>,
    store: Store,
    _reservation: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let (log, _, _) =
            AuditLog::open(&place.path().join("audit"), audit_service::Settings::default()).unwrap();
        let (log, wall) = (Arc::new(log), Arc::new(Wall(AtomicU64::new(BEGIN))));
        let gateway = Arc::new(Gateway::new(Policy::builtin().unwrap(), wall.clone()));
        let approvals = Approvals::new(gateway.clone(), log.clone(), store.clone(), wall.clone(), SETTINGS);
        Self { wall, log, approvals: Arc::new(approvals), gateway, store, _reservation: place }
    }

    /// Somebody sets the clock to so many seconds after the beginning.
    fn set(&self, seconds: i64) {
        self.wall.0.store(BEGIN.saturating_add_signed(seconds * 1_000), Ordering::SeqCst);
    }

    async fn asks(&self) -> (Approval, oneshot::Receiver<Approval>) {
        let (ticket, asker) = self.ticket();
        self.approvals.ask(&ticket, Review::default(), asker).await.unwrap()
    }

    /// A call that needs consent.
    fn ticket(&self) -> (Box<Ticket>, Asker) {
        let (call, run) = (CallId::new(), RunId::new());
        let scope = RunScope { profile: "review".to_owned(), image_id: "sha256:1".to_owned() };
        let caller = Caller {
            principal: "uid:1000".to_owned(),
            agent_id: "alice".to_owned(),
            role: "manager".to_owned(),
            run_id: run.to_string(),
        };
        let write = Write::new("a.txt".parse().unwrap(), "x");
        let admitted = self.gateway.admit(
            &self.gateway.policy(),
            &scope,
            &caller,
            &call.to_string(),
            Operation::Write(write),
        );
        let Admission::Ask(ticket) = admitted else { panic!("{admitted:?}") };
        (ticket, asker(call, run))
    }

    fn state(&self, approval: &Approval) -> ApprovalState {
        self.gateway.approval(&approval.approval_id).unwrap().state
    }

    fn approve(&self, approval: &Approval) -> bool {
        let reviewer =
            Reviewer { principal: "uid:0".to_owned(), level: Level::Director, may_decide_own: false };
        self.gateway.decide(&approval.approval_id, &reviewer, &Ballot::once(Choice::Approve, "")).is_ok()
    }

    /// Kinds of the records, in order.
    async fn recorded(&self) -> Vec<String> {
        let mut kinds = Vec::new();
        let mut follow = self.log.read_after(0, false);
        while let Some(lines) = follow.next().await.unwrap() {
            kinds.extend(lines.iter().map(|line| line.record.event.kind.as_str().to_owned()));
        }
        kinds
    }
}

const REQUESTED: &str = "approval_requested";
const REMINDED: &str = "approval_reminded";
const DECIDED: &str = "approval_decided";

fn asker(call: CallId, run: RunId) -> Asker {
    Asker {
        call,
        run,
        principal: "uid:1000".to_owned(),
        uid: 1_000,
        gid: 1_000,
        request_id: None,
        digest: Vec::new(),
        dialect: None,
        task_id: String::new(),
        correlation_id: String::new(),
        limit: None,
        via_token: false,
        trace: serde_json::from_str(&format!(
            r#"{{"own":"00-{}-{}-01","parent":null,"has_span":true}}"#,
            "ab".repeat(16),
            "cd".repeat(8)
        ))
        .unwrap(),
    }
}

#[tokio::test]
async fn a_running_clock_reminds_once_and_expires_once() {
    let scene = Scene::new();
    let (approval, mut settled) = scene.asks().await;
    for seconds in [0, 144, 150, 156, 299] {
        scene.set(seconds);
        scene.approvals.look().await;
    }
    assert!(settled.try_recv().is_err());
    assert_eq!(scene.recorded().await, [REQUESTED, REMINDED]);
    for seconds in [300, 306, 3600] {
        scene.set(seconds);
        scene.approvals.look().await;
    }
    assert_eq!(settled.try_recv().unwrap().state, ApprovalState::Expired);
    assert_eq!(scene.recorded().await, [REQUESTED, REMINDED, DECIDED]);
    assert!(!scene.approve(&approval));
}

#[tokio::test]
async fn a_clock_that_is_set_forward_expires_permanently_without_a_reminder() {
    let scene = Scene::new();
    let (approval, mut settled) = scene.asks().await;
    scene.set(86_400);
    assert!(!scene.approve(&approval), "too late, also before anybody looked");
    scene.approvals.look().await;
    assert_eq!(settled.try_recv().unwrap().state, ApprovalState::Expired);
    // Set right again, nothing comes back.
    scene.set(60);
    scene.approvals.look().await;
    assert!(!scene.approve(&approval));
    assert_eq!(scene.state(&approval), ApprovalState::Expired);
    assert_eq!(scene.recorded().await, [REQUESTED, DECIDED]);
}

#[tokio::test]
async fn a_clock_that_is_set_back_lets_it_wait_until_its_time_and_reminds_no_second_time() {
    let scene = Scene::new();
    let (approval, mut settled) = scene.asks().await;
    scene.set(180);
    scene.approvals.look().await;
    assert_eq!(scene.recorded().await, [REQUESTED, REMINDED]);
    for seconds in [-3600, 0, 156, 294] {
        scene.set(seconds);
        scene.approvals.look().await;
    }
    assert!(settled.try_recv().is_err());
    assert_eq!(scene.recorded().await, [REQUESTED, REMINDED], "one reminder, however often it is half-time");
    scene.set(300);
    scene.approvals.look().await;
    assert_eq!(settled.try_recv().unwrap().state, ApprovalState::Expired);

    // Before its time a decision counts, whatever the clock says.
    let (approval_back, _) = scene.asks().await;
    scene.set(-36_000);
    assert!(scene.approve(&approval_back));
    assert_eq!(scene.state(&approval_back), ApprovalState::Approved);
    assert_eq!(scene.state(&approval), ApprovalState::Expired);
}

/// Nobody has to wake the daemon for a jump: it looks at the clock once a second at least while something waits.
#[tokio::test]
async fn approvals_notice_a_clock_jump() {
    let scene = Scene::new();
    let (_, settled) = scene.asks().await;
    let stop = CancellationToken::new();
    let (approvals, stopped) = (scene.approvals.clone(), stop.clone());
    let keeping = tokio::spawn(async move { approvals.keep_time(stopped).await });
    tokio::task::yield_now().await;
    scene.set(86_400);
    let settled = tokio::time::timeout(Duration::from_secs(60), settled).await.unwrap().unwrap();
    assert_eq!(settled.state, ApprovalState::Expired);
    stop.cancel();
    keeping.await.unwrap();
}

#[tokio::test]
async fn an_approval_of_an_older_release_is_cancelled_with_its_reason() {
    let scene = Scene::new();
    let (approval, _settled) = scene.asks().await;
    let id = &approval.approval_id;
    let run = Record { id: RunId::parse(&approval.run_id).unwrap(), ..runs::testing::record() };
    runs::stored::insert(&scene.store, &run, None, &BTreeMap::new()).unwrap();
    let stored = scene.store.approvals().unwrap().0.pop().unwrap();
    // As it was stored before approvals were bound to what a call uses.
    let mut head: serde_json::Value = serde_json::from_slice(&stored.approval).unwrap();
    let older = head["approval"].as_object_mut().unwrap();
    for field in ["format", "held"] {
        assert!(older.remove(field).is_some());
    }
    scene.store.delete_approval(id).unwrap();
    let stored = StoredApproval { approval: serde_json::to_vec(&head).unwrap(), ..stored };
    scene.store.insert_approval(&stored).unwrap();

    let found = WaitingApprovals::read(&scene.store, &scene.log).await.unwrap();
    assert!(found.calls().is_empty(), "its intent is closed");
    let next = Gateway::new(Policy::builtin().unwrap(), scene.wall.clone());
    assert!(found.restore(&scene.store, &next, |_| true).unwrap().is_empty(), "nothing waits for it");
    let shown = next.approval(id).unwrap();
    assert_eq!(shown.state, ApprovalState::Cancelled);
    assert!(shown.comment.contains("older release"), "{}", shown.comment);
    assert!(scene.store.approvals().unwrap().0.is_empty());
}

/// A daemon that is killed in between has shown nobody what the next one will not know.
#[tokio::test]
async fn an_approval_is_visible_and_decided_only_when_it_is_stored() {
    let scene = Scene::new();
    let (ticket, asker) = scene.ticket();
    let id = uuid::Uuid::now_v7();
    let review = Review { approval_id: Some(id), ..Review::default() };
    let asking = scene.approvals.ask(&ticket, review, asker);
    let mut asking = std::pin::pin!(asking);
    let reviewer = Reviewer { principal: "uid:0".to_owned(), level: Level::Director, may_decide_own: false };
    let id = id.to_string();
    let mut steps = 0;
    let (approval, _settled) = loop {
        // One step of it, and then a look.
        if let std::task::Poll::Ready(asked) = futures_util::poll!(&mut asking) {
            break asked.unwrap();
        }
        steps += 1;
        if scene.store.approvals().unwrap().0.is_empty() {
            assert_eq!(scene.gateway.list_approvals(&ApprovalFilter::default()), []);
            assert_eq!(scene.gateway.approval(&id), None);
            let decided = scene.gateway.decide(&id, &reviewer, &Ballot::once(Choice::Approve, ""));
            assert_eq!(decided, Err(DecideError::NotFound));
        }
        tokio::task::yield_now().await;
    };
    assert!(steps > 0, "it was kept without a wait, so that nothing was seen in between");
    assert_eq!(approval.approval_id, id);
    assert_eq!(scene.gateway.list_approvals(&ApprovalFilter::default()), [approval]);
    assert_eq!(scene.recorded().await, [REQUESTED]);
}

/// A signature over other texts than those of the request is found in the log.
#[tokio::test]
async fn a_request_is_recorded_with_the_digest_of_the_shown_texts() {
    let scene = Scene::new();
    let (approval, _settled) = scene.asks().await;
    let shown = |approval: &Approval| events::requested(approval).details.unwrap()["shown"].clone();
    assert_eq!(shown(&approval), approval.shown_digest());
    let changes: [fn(&mut Approval); 5] = [
        |it| it.preview.push('x'),
        |it| it.operation_json.push('x'),
        |it| it.justification.push('x'),
        |it| it.requested_by.push('x'),
        |it| it.rule.push('x'),
    ];
    for change in changes {
        let mut other = approval.clone();
        change(&mut other);
        assert_ne!(shown(&other), shown(&approval));
    }
}

/// The run ends while the call is being kept.
#[tokio::test]
async fn approval_cancelled_before_it_is_stored_is_settled() {
    let scene = Scene::new();
    let (ticket, asker) = scene.ticket();
    let call = asker.call.to_string();
    let mut asking = std::pin::pin!(scene.approvals.ask(&ticket, Review::default(), asker));
    assert!(futures_util::poll!(&mut asking).is_pending());
    scene.approvals.cancel(&call).await;
    let (approval, settled) = asking.await.unwrap();
    assert_eq!(settled.await.unwrap().state, ApprovalState::Cancelled);
    assert_eq!(scene.state(&approval), ApprovalState::Cancelled);
}

#[test]
fn a_director_decides_at_a_higher_level_than_an_approver() {
    let none = Roles::none();
    assert_eq!(level(none.with(Role::Approver)), Some(Level::Approver));
    assert_eq!(level(none.with(Role::Director)), Some(Level::Director));
    assert_eq!(level(Roles::all()), Some(Level::Director));
    assert_eq!(level(none.with(Role::Operator)), None);
}
