// Builds the AdaptDLJob that runs a trial in a cluster.
//
// A trial's job is named STUDY-N and has labels with its study and trial. The program gets the parameters as in a run
// on this machine (command_template.h). Its file of results (adaptdl/report.h) is its standard output, because that can
// be read while the job runs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/submission.h"
#include "tune/space.h"

namespace adaptdl::sched::tune {

// Labels of a trial's job.
inline constexpr char kStudyLabel[] = "adaptdl/study";
inline constexpr char kTrialLabel[] = "adaptdl/trial";
// A random value that distinguishes a study from others of the same name.
inline constexpr char kStudyIdLabel[] = "adaptdl/study-id";

struct TrialJobPlan {
  std::string study, study_id;
  nlohmann::json job;                  // from a job file; its first container runs the program, its name is ignored
  kube::SubmissionOptions submission;  // for all jobs; `name`, `arguments` and `claim` are ignored
  std::vector<std::string> command;    // see command_template.h
};

std::string trial_job_name(const std::string& study, int number);
// Returns the number of the trial whose job this is, or none if the job does not have a valid label of a trial.
std::optional<int> trial_of(const nlohmann::json& job);
// Returns the label selector for the jobs of all trials of the study.
std::string trial_selector(const std::string& study_id);

// Returns the job of a trial and the claim of its volume, whose name is the same each time. Throws UsageError as
// make_submission() does.
kube::Submission make_trial_job(const TrialJobPlan& plan, int number, const Values& values);

// Throws UsageError if the names of jobs cannot begin with that of the study.
void check_job_names(const std::string& study);

}  // namespace adaptdl::sched::tune
