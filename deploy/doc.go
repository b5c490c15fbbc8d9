// Package deploy has no code of its own: its tests hold the images, manifests, alerts and dashboards of
// this folder to what the binaries really do.
package deploy
