// Package admin is freshet's HTTP side: health, metrics, status, dead letters, the live tail and a page that shows how
// things stand. It knows no stage; what it shows is given to it as functions.
//
// Two listeners: the admin listener serves everything and belongs on loopback; the metrics listener serves /livez,
// /readyz and /metrics only, without a token, and may face a scraper. Every change needs the token, and on an admin
// listener that is not on loopback so does everything else but the page's own files, which hold no data. What shows
// key names, which can be personal data, needs the token wherever one is set.
//
// [Server.Run] owns both listeners and all their handlers, and returns when they have ended.
package admin
