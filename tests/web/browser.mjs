// Starts headless Chromium with one profile folder, so that a later start finds what an earlier one stored.

import { chromium } from 'playwright-core';

const WITH_WEBGPU = ['--enable-unsafe-webgpu'];
const WITHOUT_WEBGPU = ['--disable-features=WebGPU,WebGPUService', '--disable-blink-features=WebGPU'];

/** A browser with the profile, with WebGPU (SwiftShader where there is no GPU) or without. */
export function launch(executablePath, profile, webgpu) {
  const args = [
    '--no-first-run',
    '--disable-quic',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    ...(webgpu ? WITH_WEBGPU : WITHOUT_WEBGPU),
  ];
  return chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    chromiumSandbox: false,
    args,
    viewport: { width: 1280, height: 800 },
  });
}
