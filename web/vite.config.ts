import { defineConfig } from "vite";

// Paths are relative, so that the built files work from any folder of any server.
export default defineConfig({
  base: "./",
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: "es" },
});
