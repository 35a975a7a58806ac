# A GKE cluster for Scalescope: one zone, a pool on demand that is always there, two pools of spot nodes that scale to zero.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.0, < 8.0"
    }
  }
}

provider "google" {
  project = var.project
  zone    = var.zone
}

data "google_project" "this" {}

resource "google_container_cluster" "this" {
  name                     = var.name
  location                 = var.zone
  network                  = var.network
  subnetwork               = var.subnetwork
  deletion_protection      = false
  remove_default_node_pool = true
  initial_node_count       = 1
  networking_mode          = "VPC_NATIVE"
  datapath_provider        = "ADVANCED_DATAPATH" # enforces network policies

  ip_allocation_policy {}

  release_channel {
    channel = "REGULAR"
  }

  workload_identity_config {
    workload_pool = "${var.project}.svc.id.goog"
  }
}

# Nodes need no more than to write logs and metrics, and to pull images.
resource "google_service_account" "nodes" {
  account_id   = "${var.name}-nodes"
  display_name = "Nodes of ${var.name}"
}

resource "google_project_iam_member" "nodes" {
  for_each = toset(["roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader"])
  project  = var.project
  role     = each.value
  member   = google_service_account.nodes.member
}

# Flows may write records to a bucket: by Workload Identity, without a key.
resource "google_storage_bucket_iam_member" "flows" {
  count  = var.records_bucket == "" ? 0 : 1
  bucket = var.records_bucket
  role   = "roles/storage.objectUser"
  member = "principal://iam.googleapis.com/projects/${data.google_project.this.number}/locations/global/workloadIdentityPools/${var.project}.svc.id.goog/subject/ns/${var.namespace}/sa/${var.flows_service_account}"
}

# Schedulers, flows and the operator.
resource "google_container_node_pool" "cpu" {
  name     = "cpu"
  cluster  = google_container_cluster.this.id
  location = var.zone

  autoscaling {
    min_node_count = 1
    max_node_count = var.cpu_max_nodes
  }

  node_config {
    machine_type    = var.cpu_machine_type
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]

    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }
}

# Workers. GKE labels spot nodes cloud.google.com/gke-spot=true, and does not taint them: without the taint, schedulers could
# be placed on them.
resource "google_container_node_pool" "cpu_spot" {
  name               = "cpu-spot"
  cluster            = google_container_cluster.this.id
  location           = var.zone
  initial_node_count = 0

  autoscaling {
    min_node_count  = 0
    max_node_count  = var.cpu_spot_max_nodes
    location_policy = "ANY"
  }

  node_config {
    machine_type    = var.cpu_spot_machine_type
    spot            = true
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]

    taint {
      key    = "cloud.google.com/gke-spot"
      value  = "true"
      effect = "NO_SCHEDULE"
    }

    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }

  lifecycle {
    ignore_changes = [initial_node_count]
  }
}

# Workers with GPUs. GKE itself labels these nodes cloud.google.com/gke-accelerator=TYPE, taints them
# nvidia.com/gpu=present:NoSchedule, and installs the driver.
resource "google_container_node_pool" "gpu_spot" {
  name               = "gpu-spot"
  cluster            = google_container_cluster.this.id
  location           = var.zone
  initial_node_count = 0

  autoscaling {
    min_node_count  = 0
    max_node_count  = var.gpu_spot_max_nodes
    location_policy = "ANY"
  }

  node_config {
    machine_type    = var.gpu_machine_type
    spot            = true
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]

    guest_accelerator {
      type  = var.gpu_type
      count = var.gpus_per_node

      gpu_driver_installation_config {
        gpu_driver_version = "DEFAULT"
      }
    }

    taint {
      key    = "cloud.google.com/gke-spot"
      value  = "true"
      effect = "NO_SCHEDULE"
    }

    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }

  lifecycle {
    ignore_changes = [initial_node_count]
  }
}
