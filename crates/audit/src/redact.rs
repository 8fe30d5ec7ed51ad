//! Hides secrets in an event before it is written.

use redact::Redactor;

use crate::event::Event;

impl Event {
    /// Hides secrets in everything that an agent, a command or a policy author can fill with free text, those of the event's
    /// run among them, and notes how many there were. The caller that hands the event to the writer calls it once.
    pub fn redact(&mut self, redactor: &Redactor) {
        let redactor = &*redactor.of(self.run_id.as_deref().unwrap_or_default());
        let mut hidden = 0;
        for value in [&mut self.input, &mut self.details].into_iter().flatten() {
            hidden += redactor.value(value);
        }
        let decision = self.decision.as_mut().and_then(|d| d.reason.as_mut());
        let (message, facts) = match &mut self.outcome {
            Some(outcome) => (outcome.message.as_mut(), outcome.facts.as_mut()),
            None => (None, None),
        };
        hidden += facts.map_or(0, |facts| redactor.value(facts));
        let names = [&mut self.request_id, &mut self.agent_id, &mut self.operation];
        for text in [decision, message].into_iter().chain(names.into_iter().map(Option::as_mut)).flatten() {
            let (clean, count) = redactor.text(text);
            if count > 0 {
                *text = clean;
                hidden += count;
            }
        }
        if hidden > 0 {
            self.redactions =
                Some(self.redactions.unwrap_or(0).saturating_add(u32::try_from(hidden).unwrap_or(u32::MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{Decision, Kind, Outcome, Status, Verdict};

    #[test]
    fn an_event_is_cleaned_as_a_whole() {
        let mut event = Event::new(Kind::CallReceipt)
            .agent("alice")
            .input(json!({"token": "hunter2"}))
            .details(json!({"text": "password=hunter2"}))
            .decision(Decision::new(Verdict::Deny).reason("--token hunter2 is not allowed"))
            .outcome(Outcome::new(Status::Denied).message("secret: hunter2").facts(json!(["pwd=hunter2"])));
        event.redact(&Redactor::default());
        assert!(!serde_json::to_string(&event).unwrap().contains("hunter2"));
        assert_eq!(event.redactions, Some(5));
    }

    #[test]
    fn an_event_is_redacted_with_the_secrets_of_its_run() {
        let redactor = Redactor::default();
        redactor.learn("r", ["seven green bottles"].into_iter());
        let event = |run: &str| {
            let event = Event::new(Kind::CallIntent).run(run).request("seven green bottles");
            let mut event = event.input(json!({"path": "a/seven green bottles"}));
            event.redact(&redactor);
            (event.request_id.unwrap(), event.input.unwrap()["path"].clone(), event.redactions)
        };
        assert_eq!(event("r"), ("[redacted:secret]".to_owned(), json!("a/[redacted:secret]"), Some(2)));
        assert_eq!(event("s").2, None);
    }
}
