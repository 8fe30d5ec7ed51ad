// Shows a notice that an approval waits, and opens its link. A notice has nothing but the link.
"use strict";

// A link of this console: anything else leads to its first page.
const own = (link) => {
  try {
    const url = new URL(link, self.location.origin);
    return url.origin === self.location.origin ? url.href : "/";
  } catch {
    return "/";
  }
};

self.addEventListener("push", (event) => {
  let link = "/";
  try {
    link = own(event.data.json().link);
  } catch {
    // A notice of another form opens the first page.
  }
  event.waitUntil(
    self.registration.showNotification("Cofferdam", {
      body: "An approval waits.",
      tag: link,
      icon: "/assets/icon.svg",
      data: link,
    }),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(own(event.notification.data)));
});
